//! A credential as it is sent: encoded once, and the only copy in memory.

use std::{
    fmt,
    ops::Range,
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use super::{Cluster, Fingerprint, Generation, Material};
use secrecy::ExposeSecret as _;

/// The contents of a response with a credential. Not `Debug`: it borrows secrets.
#[expect(missing_debug_implementations, reason = "its fields are secrets")]
pub struct Draft<'a> {
    /// Which credential it is.
    pub generation: &'a Generation,
    /// The bearer token.
    pub token: Option<&'a str>,
    /// PEM chain and key.
    pub pair: Option<(&'a [u8], &'a [u8])>,
    /// The fingerprint of the chain.
    pub fingerprint: Option<Fingerprint>,
    /// The effective expiry.
    pub expires_at: SystemTime,
    /// From arrival to `expires_at`.
    pub lifetime: Duration,
    /// The cluster that the credential is for, if known.
    pub cluster: Option<&'a Cluster>,
}

/// An encoded response, and the positions of the secrets in it. `Debug` shows only its length.
#[derive(Clone, Default)]
pub struct EncodedCredential {
    /// The whole response with its gRPC header. Its memory is wiped when the last clone is dropped, because the allocator
    /// wipes freed memory.
    pub frame: Bytes,
    /// The bearer token, UTF-8.
    pub token: Option<Range<usize>>,
    /// The PEM chain.
    pub certificate: Option<Range<usize>>,
    /// The PEM key.
    pub key: Option<Range<usize>>,
}

/// Encodes a [`Draft`]. The server defines the wire format, so it passes this function to the cache.
pub type EncodeFn = fn(&Draft<'_>) -> EncodedCredential;

impl<'a> Draft<'a> {
    /// The token and the pair of `material`.
    #[expect(clippy::type_complexity, reason = "the types of two fields")]
    pub fn secrets(material: &'a Material) -> (Option<&'a str>, Option<(&'a [u8], &'a [u8])>) {
        let token = material.token.as_ref().map(|token| token.secret.expose_secret());
        let pair = material.pair.as_ref();
        (token, pair.map(|pair| (pair.chain_pem.expose_secret(), pair.key_pem.expose_secret())))
    }
}

impl EncodedCredential {
    /// The bytes of `range`; empty if there is none.
    pub(super) fn slice(&self, range: Option<&Range<usize>>) -> Option<&[u8]> {
        self.frame.get(range?.clone())
    }
}

impl fmt::Debug for EncodedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedCredential({} bytes)", self.frame.len())
    }
}
