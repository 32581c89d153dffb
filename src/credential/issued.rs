//! A credential that the broker serves, with its generation and its validity.

use std::{
    fmt, str,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Bound, Draft, EncodedCredential, Fingerprint, Material};

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
    pub bound: Bound,
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
pub(crate) mod tests {
    use super::{super::encoded::plain, *};
    use crate::credential::{ClientPair, Token};

    /// A token that lives a minute.
    pub(crate) fn with_token(token: &str) -> Issued {
        issued(&material(Some(token), None))
    }

    fn material(token: Option<&str>, fingerprint: Option<u8>) -> Material {
        let token = token.map(|token| Token { secret: token.into(), expires_at: None });
        let pair = fingerprint.map(|byte| ClientPair {
            chain_pem: b"chain".to_vec().into(),
            key_pem: b"key".to_vec().into(),
            fingerprint: Fingerprint([byte; 32]),
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
        });
        Material { token, pair }
    }

    fn issued(material: &Material) -> Issued {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let generation = Generation::new("e".into(), 7);
        let (expires_at, lifetime) = (wall + Duration::from_secs(60), Duration::from_secs(60));
        let (token, pair) = Draft::secrets(material);
        let fingerprint = material.pair.as_ref().map(|pair| pair.fingerprint);
        let draft =
            Draft { generation: &generation, token, pair, fingerprint, expires_at, lifetime, cluster: None };
        let encoded = plain(&draft);
        let fetched = Now { wall, boot: Duration::from_secs(500) };
        let certificate = None;
        let (within_skew, bound) = (false, Bound::UnknownExpiry);
        Issued {
            generation,
            encoded,
            fingerprint,
            certificate,
            fetched,
            expires_at,
            lifetime,
            within_skew,
            bound,
        }
    }

    #[test]
    fn it_is_valid_only_while_both_clocks_agree() {
        let issued = issued(&Material::default());
        let at = |wall: i64, boot: u64| {
            let shift = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 { issued.fetched.wall - shift } else { issued.fetched.wall + shift };
            issued.is_valid_at(Now { wall, boot: issued.fetched.boot + Duration::from_secs(boot) })
        };
        assert!(at(0, 0) && at(59, 59));
        assert!(!at(60, 59), "the wall clock reached the expiry");
        assert!(!at(59, 60), "the lifetime has passed");
        assert!(!at(3600, 1), "the wall clock was stepped forward");
        assert!(at(-3600, 59) && !at(-3600, 60), "a step back extends nothing");
    }

    #[test]
    fn a_generation_prints_epoch_and_number() {
        assert_eq!(issued(&Material::default()).generation.to_string(), "e-7");
    }

    #[test]
    fn the_secrets_are_found_in_what_is_sent() {
        let both = issued(&material(Some("t"), Some(1)));
        assert_eq!(
            (both.token(), both.certificate_pem(), both.key_pem()),
            (Some("t"), Some(&b"chain"[..]), Some(&b"key"[..]))
        );
        let neither = issued(&Material::default());
        assert_eq!((neither.token(), neither.certificate_pem(), neither.key_pem()), (None, None, None));
        assert_eq!(format!("{:?}", both.encoded), "EncodedCredential(9 bytes)");
    }

    #[test]
    fn material_is_the_same_when_the_token_and_the_chain_are() {
        let all = [
            (None, None),
            (Some("t"), None),
            (Some("u"), None),
            (None, Some(1)),
            (Some("t"), Some(1)),
            (None, Some(2)),
        ];
        for (index, (token, chain)) in all.into_iter().enumerate() {
            for (other_index, (other_token, other_chain)) in all.into_iter().enumerate() {
                let same = issued(&material(token, chain)).is_same_as(&material(other_token, other_chain));
                assert_eq!(same, index == other_index);
            }
        }
    }
}
