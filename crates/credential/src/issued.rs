//! A credential that the broker serves, with its generation and its validity: encoded once, and the only copy in memory.

use std::{
    fmt,
    ops::Range,
    str,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use secrecy::ExposeSecret as _;

use crate::{
    exec_credential::Material, exec_info::Cluster, lifetime::LifetimeBound, pair::Validity, sha256::Sha256,
};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The wall clock, with which expiry times are compared. It can be stepped in either direction.
    pub wall: SystemTime,
    /// The time since boot, including suspend. It never steps.
    pub boot: Duration,
}

/// Identifies a credential among all that this broker had. Equal generations have the same material.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Generation {
    /// Random for each start of the broker, so that no two starts use the same generation.
    epoch: Arc<str>,
    number: u64,
}

impl Generation {
    /// Generation `number` of the broker start `epoch`.
    pub fn new(epoch: Arc<str>, number: u64) -> Self {
        Self { epoch, number }
    }

    /// Its number within one start of the broker.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.number)
    }
}

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
    pub fingerprint: Option<Sha256>,
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
    /// The whole response with its gRPC header. The allocator wipes it when the last clone is dropped.
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

/// A credential that passed every check. Immutable: a rotation makes a new value.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Identifies the credential.
    pub generation: Generation,
    /// The response that contains it.
    pub encoded: EncodedCredential,
    /// The fingerprint of the client certificate, if there is one.
    pub fingerprint: Option<Sha256>,
    /// The validity of that certificate.
    pub certificate: Option<Validity>,
    /// When the broker received it.
    pub fetched: Now,
    /// The effective expiry: from this moment on it is not served.
    pub expires_at: SystemTime,
    /// From `fetched` to `expires_at`.
    pub lifetime: Duration,
    /// Why it does not live longer.
    pub bound: LifetimeBound,
}

impl Issued {
    /// Whether it may be served at `now`.
    ///
    /// Both clocks must agree, so that steps of the wall clock and a suspend never extend its validity.
    pub fn is_valid_at(&self, now: Now) -> bool {
        now.wall < self.expires_at && now.boot < self.fetched.boot.saturating_add(self.lifetime)
    }

    /// How long it may still be served, by both clocks.
    pub fn left(&self, now: Now) -> Duration {
        let wall = self.expires_at.duration_since(now.wall).unwrap_or_default();
        wall.min(self.fetched.boot.saturating_add(self.lifetime).saturating_sub(now.boot))
    }

    /// The bearer token.
    pub fn token(&self) -> Option<&str> {
        self.encoded.slice(self.encoded.token.as_ref()).and_then(|token| str::from_utf8(token).ok())
    }

    /// The client certificate chain: PEM, leaf first.
    pub fn certificate_pem(&self) -> Option<&[u8]> {
        self.encoded.slice(self.encoded.certificate.as_ref())
    }

    /// The private key of the leaf, in PEM.
    pub fn key_pem(&self) -> Option<&[u8]> {
        self.encoded.slice(self.encoded.key.as_ref())
    }

    /// Whether `material` is the same credential: the same token and the same certificate chain, to which the key belongs.
    /// A different PEM text of the same chain is not a rotation.
    pub fn is_same_as(&self, material: &Material) -> bool {
        let (token, _) = Draft::secrets(material);
        self.token() == token && self.fingerprint == material.pair.as_ref().map(|pair| pair.fingerprint)
    }
}

#[cfg(test)]
mod tests;
