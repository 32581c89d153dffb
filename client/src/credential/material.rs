//! The secrets of a credential.

use std::{fmt, sync::OnceLock};

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretSlice, SecretString};

pub(super) struct Bearer {
    pub(super) token: SecretString,
    /// Built once, so that a request costs a reference count and no copy of the token.
    header: OnceLock<Option<HeaderValue>>,
}

impl Bearer {
    /// `None`: the token does not fit into a header.
    pub(super) fn new(token: String) -> Option<Self> {
        // As `HeaderValue::from_str` has it. A process that makes one request as an exec plugin needs no header.
        let fits = token.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..));
        fits.then(|| Self { token: token.into(), header: OnceLock::new() })
    }

    pub(super) fn header(&self) -> Option<&HeaderValue> {
        let build = || {
            let value = SecretString::from(format!("Bearer {}", self.token.expose_secret()));
            let mut header = HeaderValue::from_str(value.expose_secret()).ok()?;
            header.set_sensitive(true);
            Some(header)
        };
        self.header.get_or_init(build).as_ref()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_that_is_accepted_fits_into_a_header() {
        for character in (0..=u8::MAX).map(char::from) {
            let token = format!("a{character}");
            let header = HeaderValue::from_str(&format!("Bearer {token}"));
            let bearer = Bearer::new(token);
            assert_eq!(bearer.is_some(), header.is_ok(), "{character:?}");
            assert_eq!(bearer.as_ref().and_then(Bearer::header), header.ok().as_ref(), "{character:?}");
        }
    }
}
