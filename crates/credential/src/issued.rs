//! A credential that the broker serves, with its generation and its validity.

use std::{
    fmt, str,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Draft, EncodedCredential, Fingerprint, LifetimeBound, Material};

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
}

impl Generation {
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

/// A credential that passed every check. Immutable: a rotation makes a new value.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Identifies the credential.
    pub generation: Generation,
    /// The response that contains it.
    pub encoded: EncodedCredential,
    /// The fingerprint of the client certificate, if there is one.
    pub fingerprint: Option<Fingerprint>,
    /// The validity of that certificate.
    pub certificate: Option<Validity>,
    /// When the broker received it.
    pub fetched: Now,
    /// The effective expiry: from this moment on it is not served.
    pub expires_at: SystemTime,
    /// From `fetched` to `expires_at`.
    pub lifetime: Duration,
    /// It had expired when it arrived, by less than the skew tolerance, and is served for a few seconds.
    pub within_skew: bool,
    /// Why it does not live longer.
    pub bound: LifetimeBound,
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    /// Its `NotBefore`.
    pub from: SystemTime,
    /// Its `NotAfter`.
    pub to: SystemTime,
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
