//! A credential in the broker's hands: which one, since when, until when.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use secrecy::ExposeSecret as _;

use super::Material;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// What expiry times are compared with. Can be stepped in either direction.
    pub wall: SystemTime,
    /// Time since boot, suspend included. Never steps.
    pub boot: Duration,
}

/// Names one credential among all that this broker ever had: equal means the same material.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Generation {
    /// Random per broker start, so that a restart never reuses a name.
    epoch: Arc<str>,
    number: u64,
}

impl Generation {
    /// The `number`th of the broker start `epoch`.
    pub fn new(epoch: Arc<str>, number: u64) -> Self {
        Self { epoch, number }
    }
}

impl Generation {
    /// Its number among those of one broker start.
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
    /// Which credential it is.
    pub generation: Generation,
    /// What authenticates.
    pub material: Arc<Material>,
    /// When the broker got it.
    pub fetched: Now,
    /// The effective expiry: the first moment at which it is not served any more.
    pub expires_at: SystemTime,
    /// From `fetched` to `expires_at`.
    pub lifetime: Duration,
    /// It had expired when it arrived, by less than the skew tolerance, and is lent for a few seconds.
    pub within_skew: bool,
}

impl Issued {
    /// Whether it may be served at `now`.
    ///
    /// Both clocks must agree, so that a step back of the wall clock, a step forward and a suspend all fail safe.
    pub fn is_valid_at(&self, now: Now) -> bool {
        now.wall < self.expires_at && now.boot < self.fetched.boot.saturating_add(self.lifetime)
    }

    /// The bearer token.
    pub fn token(&self) -> Option<&str> {
        self.material.token.as_ref().map(|token| token.secret.expose_secret())
    }

    /// The client certificate chain, as PEM, leaf first.
    pub fn certificate_pem(&self) -> Option<&[u8]> {
        self.material.pair.as_ref().map(|pair| pair.chain_pem.expose_secret())
    }

    /// The private key of the leaf, as PEM.
    pub fn key_pem(&self) -> Option<&[u8]> {
        self.material.pair.as_ref().map(|pair| pair.key_pem.expose_secret())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued() -> Issued {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        Issued {
            generation: Generation::new("e".into(), 7),
            material: Arc::new(Material::default()),
            fetched: Now { wall, boot: Duration::from_secs(500) },
            expires_at: wall + Duration::from_secs(60),
            lifetime: Duration::from_secs(60),
            within_skew: false,
        }
    }

    #[test]
    fn it_is_valid_only_while_both_clocks_say_so() {
        let issued = issued();
        let at = |wall: i64, boot: u64| {
            let shift = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 { issued.fetched.wall - shift } else { issued.fetched.wall + shift };
            issued.is_valid_at(Now { wall, boot: issued.fetched.boot + Duration::from_secs(boot) })
        };
        assert!(at(0, 0) && at(59, 59));
        assert!(!at(60, 59), "the wall clock reached the expiry");
        assert!(!at(59, 60), "the lifetime has passed");
        assert!(!at(3600, 1), "the wall clock was stepped forward");
        assert!(at(-3600, 59) && !at(-3600, 60), "a step back lengthens nothing");
    }

    #[test]
    fn a_generation_prints_epoch_and_number() {
        assert_eq!(issued().generation.to_string(), "e-7");
    }
}
