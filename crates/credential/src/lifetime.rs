//! How long a credential may be served.

use std::time::{Duration, SystemTime};

use crate::exec_credential::Decoded;

/// The bounds of a provider on lifetimes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LifetimeLimits {
    /// The upper bound, counted from arrival.
    pub max_age: Option<Duration>,
    /// The lifetime of a credential without any expiry.
    pub unknown_expiry_max_age: Duration,
}

/// The effective expiry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lifetime {
    /// From this moment on it is not served.
    pub expires_at: SystemTime,
    /// It had expired on arrival, by less than the skew tolerance.
    pub within_skew: bool,
    /// What it comes from.
    pub bound: LifetimeBound,
}

/// What bounds a lifetime: the earliest of all that apply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LifetimeBound {
    /// The `expirationTimestamp` that the plugin printed.
    ExpirationTimestamp,
    /// The `NotAfter` of the client certificate.
    NotAfter,
    /// The `exp` claim of a token that is a JWT.
    TokenExp,
    /// The provider's `maxAge`.
    MaxAge,
    /// The provider's `unknownExpiryMaxAge`, because there is no other expiry.
    UnknownExpiry,
    /// The grace for a credential that had expired on arrival.
    ClockSkew,
}

impl Lifetime {
    /// The rest of the lifetime at `wall`.
    pub fn left(&self, wall: SystemTime) -> Duration {
        self.expires_at.duration_since(wall).unwrap_or_default()
    }
}

/// Why a credential cannot be served.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LifetimeError {
    /// The certificate's `NotAfter` had passed.
    #[error(
        "the certificate expired {0:?} before the plugin printed it; check the plugin's own cache and this machine's clock"
    )]
    Certificate(Duration),
    /// `expirationTimestamp` or the token's `exp` had passed.
    #[error(
        "the credential expired {0:?} before the plugin printed it; check the plugin's own cache and this machine's clock"
    )]
    Credential(Duration),
    /// The certificate's `NotBefore` is further ahead than clocks may differ.
    #[error(
        "the certificate is not valid before {0:?} from now; check this machine's clock and the issuer's"
    )]
    NotYetValid(Duration),
}

impl LifetimeError {
    /// What the plugin printed.
    pub const fn found(&self) -> &'static str {
        match self {
            Self::Certificate { .. } | Self::Credential { .. } => "an expired credential",
            Self::NotYetValid { .. } => "a certificate that is not valid yet",
        }
    }
}

/// By how much the clock of the plugin or of this machine may be wrong.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// How long a credential that had expired within the skew is served.
const SKEW_GRACE: Duration = Duration::from_secs(10);

/// Longer than any clock can count.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The effective expiry: the earliest of those in [`LifetimeBound`], or `unknownExpiryMaxAge` if there is none.
///
/// A credential that had expired on arrival is served for ten seconds if that was less than five minutes ago: one of the
/// two clocks may be wrong. A certificate that is valid only after the next five minutes is refused.
pub fn lifetime(
    decoded: &Decoded,
    limits: LifetimeLimits,
    now: SystemTime,
) -> Result<Lifetime, LifetimeError> {
    let certificate = decoded.material.pair.as_ref().map(|pair| pair.validity.to);
    let token = decoded.material.token.as_ref().and_then(|token| token.expires_at);
    let named = [
        (decoded.expires_at, LifetimeBound::ExpirationTimestamp),
        (certificate, LifetimeBound::NotAfter),
        (token, LifetimeBound::TokenExp),
    ];
    let named = named.into_iter().filter_map(|(at, bound)| Some((at?, bound))).min_by_key(|(at, _)| *at);
    let capped = |age: Duration, bound, within_skew| {
        let max = limits.max_age.filter(|max| *max < age);
        let (age, bound) = max.map_or((age, bound), |max| (max, LifetimeBound::MaxAge));
        Lifetime { expires_at: after(now, age), within_skew, bound }
    };

    let since = |at| now.duration_since(at).ok();
    if let Some(ago) = certificate.and_then(since).filter(|ago| *ago > SKEW) {
        return Err(LifetimeError::Certificate(whole_seconds(ago)));
    }
    let not_before = decoded.material.pair.as_ref().map(|pair| pair.validity.from);
    if let Some(ahead) = not_before.and_then(|at| at.duration_since(now).ok()).filter(|ahead| *ahead > SKEW) {
        return Err(LifetimeError::NotYetValid(whole_seconds(ahead)));
    }
    let Some((expires_at, bound)) = named else {
        return Ok(capped(limits.unknown_expiry_max_age, LifetimeBound::UnknownExpiry, false));
    };
    match since(expires_at) {
        None => {
            let oldest = capped(Duration::MAX, bound, false);
            let is_named = expires_at <= oldest.expires_at;
            Ok(if is_named { Lifetime { expires_at, within_skew: false, bound } } else { oldest })
        }
        Some(ago) if ago <= SKEW => Ok(capped(SKEW_GRACE, LifetimeBound::ClockSkew, true)),
        Some(ago) => Err(LifetimeError::Credential(whole_seconds(ago))),
    }
}

fn after(now: SystemTime, age: Duration) -> SystemTime {
    now.checked_add(age).or_else(|| now.checked_add(CENTURY)).unwrap_or(now)
}

fn whole_seconds(ago: Duration) -> Duration {
    Duration::from_secs(ago.as_secs())
}

#[cfg(test)]
mod tests;
