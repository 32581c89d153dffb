//! A credential that the broker serves, with its generation and its validity: encoded once, and the only copy in memory.

use std::{
    ops::Range,
    str,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use crate::{
    exec_credential::Material,
    exec_info::Cluster,
    lifetime::{Lifetime, LifetimeBound},
    pair::Validity,
    sha256::Sha256,
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
#[derive(Clone, Debug, derive_more::Display, Eq, Hash, PartialEq)]
#[display("{epoch}-{number}")]
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

/// A credential before it is encoded.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// Identifies the credential.
    pub generation: Generation,
    /// Its token and its pair.
    pub material: &'a Material,
    /// When the broker received it.
    pub fetched: Now,
    /// How long it may be served.
    pub lifetime: Lifetime,
    /// The cluster that it is for, if known.
    pub cluster: Option<&'a Cluster>,
}

/// An encoded response, and the positions of the secrets in it. `Debug` shows only its length.
#[derive(Clone, derive_more::Debug, Default)]
#[debug("EncodedCredential({} bytes)", frame.len())]
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

impl Draft<'_> {
    /// Encodes it once, for all responses.
    pub fn issue(self, encode: EncodeFn) -> Issued {
        let pair = self.material.pair.as_ref();
        Issued {
            encoded: encode(&self),
            fingerprint: pair.map(|pair| pair.fingerprint),
            certificate: pair.map(|pair| pair.validity),
            fetched: self.fetched,
            expires_at: self.lifetime.expires_at,
            lifetime: self.lifetime.left(self.fetched.wall),
            bound: self.lifetime.bound,
            generation: self.generation,
        }
    }
}

impl EncodedCredential {
    pub(super) fn slice(&self, range: Option<&Range<usize>>) -> Option<&[u8]> {
        self.frame.get(range?.clone())
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

    /// Whether it is served for less than `min_lifetime` after `now`.
    pub fn is_shorter_than(&self, min_lifetime: Duration, now: Now) -> bool {
        self.left(now) < min_lifetime
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
        self.token() == material.token()
            && self.fingerprint == material.pair.as_ref().map(|pair| pair.fingerprint)
    }
}

#[cfg(test)]
mod tests;
