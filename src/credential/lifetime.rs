//! How long a credential may be served.

use std::time::{Duration, SystemTime};

use super::Decoded;

/// A provider's bounds on any lifetime.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LifetimeLimits {
    /// Upper bound, counted from arrival.
    pub max_age: Option<Duration>,
    /// Lifetime of a credential that names no expiry at all.
    pub unknown_expiry_max_age: Duration,
}

/// The effective expiry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lifetime {
    /// First moment at which it is not served.
    pub expires_at: SystemTime,
    /// It had expired on arrival, within the skew tolerance.
    pub within_skew: bool,
}

impl Lifetime {
    /// What is left of it at `wall`.
    pub fn left(&self, wall: SystemTime) -> Duration {
        self.expires_at.duration_since(wall).unwrap_or_default()
    }
}

/// It cannot be served at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LifetimeError {
    /// The certificate's `NotAfter` had passed.
    #[error(
        "the certificate expired {ago:?} before the plugin printed it; check the plugin's own cache and this machine's clock"
    )]
    Certificate {
        /// How long ago.
        ago: Duration,
    },
    /// `expirationTimestamp` or the token's `exp` had passed.
    #[error(
        "the credential expired {ago:?} before the plugin printed it; check the plugin's own cache and this machine's clock"
    )]
    Credential {
        /// How long ago.
        ago: Duration,
    },
}

/// How far a plugin's clock, or ours, may be off.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// For how long a credential that expired within the skew is served.
const SKEW_GRACE: Duration = Duration::from_secs(10);

/// Stands for an age that no clock can reach.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// min(`expirationTimestamp`, `NotAfter`, JWT `exp`, `maxAge` from `now`); unknown is `unknownExpiryMaxAge`.
///
/// What expired on arrival, or expires exactly now, is lent for ten seconds if that was less than five minutes ago: one
/// of the two clocks may be off.
pub fn lifetime(
    decoded: &Decoded,
    limits: LifetimeLimits,
    now: SystemTime,
) -> Result<Lifetime, LifetimeError> {
    let certificate = decoded.material.pair.as_ref().map(|pair| pair.not_after);
    let token = decoded.material.token.as_ref().and_then(|token| token.expires_at);
    let named = [decoded.expires_at, certificate, token].into_iter().flatten().min();
    let capped = |age: Duration| after(now, limits.max_age.map_or(age, |max| age.min(max)));

    if let Some(ago) = certificate.and_then(|at| since(at, now)).filter(|ago| *ago > SKEW) {
        return Err(LifetimeError::Certificate { ago: whole_seconds(ago) });
    }
    let Some(expires_at) = named else {
        return Ok(Lifetime { expires_at: capped(limits.unknown_expiry_max_age), within_skew: false });
    };
    match since(expires_at, now) {
        None => Ok(Lifetime { expires_at: expires_at.min(capped(Duration::MAX)), within_skew: false }),
        Some(ago) if ago <= SKEW => Ok(Lifetime { expires_at: capped(SKEW_GRACE), within_skew: true }),
        Some(ago) => Err(LifetimeError::Credential { ago: whole_seconds(ago) }),
    }
}

/// How long ago `at` was; `None` when it is still to come.
fn since(at: SystemTime, now: SystemTime) -> Option<Duration> {
    now.duration_since(at).ok()
}

fn after(now: SystemTime, age: Duration) -> SystemTime {
    now.checked_add(age).or_else(|| now.checked_add(CENTURY)).unwrap_or(now)
}

fn whole_seconds(ago: Duration) -> Duration {
    Duration::from_secs(ago.as_secs())
}

#[cfg(test)]
mod tests;
