//! The secrets of a credential.

use std::fmt;

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretSlice, SecretString};

pub(super) struct Bearer {
    pub(super) token: SecretString,
    /// Built once, so that a request costs a reference count and no copy of the token.
    pub(super) header: HeaderValue,
}

impl Bearer {
    pub(super) fn new(token: String) -> Option<Self> {
        let token = SecretString::from(token);
        let value = SecretString::from(format!("Bearer {}", token.expose_secret()));
        let mut header = HeaderValue::from_str(value.expose_secret()).ok()?;
        header.set_sensitive(true);
        Some(Self { token, header })
    }
}

/// A client certificate and its private key, in PEM. `Debug` does not show the key.
pub struct TlsIdentity {
    pub(super) chain: Vec<u8>,
    pub(super) key: SecretSlice<u8>,
    pub(super) fingerprint: String,
}

impl TlsIdentity {
    /// The certificate chain in PEM, leaf first.
    pub fn chain_pem(&self) -> &[u8] {
        &self.chain
    }

    /// The private key of the leaf in PEM.
    pub fn key_pem(&self) -> &SecretSlice<u8> {
        &self.key
    }

    /// Changes if and only if the certificate or the key changes.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}
