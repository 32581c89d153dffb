//! A credential in the form in which it is sent: encoded once, and the only copy that is held.

use std::{
    fmt,
    ops::Range,
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use super::{Cluster, Fingerprint, Generation, Material};
use secrecy::ExposeSecret as _;

/// What an answer says of a credential. It has no `Debug`: it borrows secrets.
#[expect(missing_debug_implementations, reason = "its fields are secrets")]
pub struct Draft<'a> {
    /// Which credential it is.
    pub generation: &'a Generation,
    /// The bearer token.
    pub token: Option<&'a str>,
    /// PEM chain and key.
    pub pair: Option<(&'a [u8], &'a [u8])>,
    /// Of the chain.
    pub fingerprint: Option<Fingerprint>,
    /// The effective expiry.
    pub expires_at: SystemTime,
    /// From arrival to `expires_at`.
    pub lifetime: Duration,
    /// Where the credential is for, if that is known.
    pub cluster: Option<&'a Cluster>,
}

/// An encoded answer, and where the secrets are in it. `Debug` shows its length only.
#[derive(Clone, Default)]
pub struct Encoded {
    /// The whole answer with its head, as it goes out. Its memory is wiped when the last clone is dropped: the allocator
    /// wipes what it frees.
    pub frame: Bytes,
    /// The bearer token, UTF-8.
    pub token: Option<Range<usize>>,
    /// The PEM chain.
    pub certificate: Option<Range<usize>>,
    /// The PEM key.
    pub key: Option<Range<usize>>,
}

/// Writes a [`Draft`] in the form in which it is sent. The wire format is the server's business, so the cache is given
/// this function.
pub type Encode = fn(&Draft<'_>) -> Encoded;

impl<'a> Draft<'a> {
    /// The token and the pair of `material`.
    #[expect(clippy::type_complexity, reason = "the types of two fields")]
    pub fn secrets(material: &'a Material) -> (Option<&'a str>, Option<(&'a [u8], &'a [u8])>) {
        let token = material.token.as_ref().map(|token| token.secret.expose_secret());
        let pair = material.pair.as_ref();
        (token, pair.map(|pair| (pair.chain_pem.expose_secret(), pair.key_pem.expose_secret())))
    }
}

impl Encoded {
    /// The bytes of `range`; empty if there is none.
    pub(super) fn slice(&self, range: Option<&Range<usize>>) -> Option<&[u8]> {
        self.frame.get(range?.clone())
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({} bytes)", self.frame.len())
    }
}

/// Secrets one after the other, without a wire format.
#[cfg(test)]
pub(crate) fn plain(draft: &Draft<'_>) -> Encoded {
    let mut frame = Vec::new();
    let mut put = |bytes: &[u8]| {
        let start = frame.len();
        frame.extend_from_slice(bytes);
        start..frame.len()
    };
    let token = draft.token.map(|token| put(token.as_bytes()));
    let (certificate, key) = draft.pair.map(|(chain, key)| (put(chain), put(key))).unzip();
    Encoded { frame: frame.into(), token, certificate, key }
}
