//! When to renew a credential or to try again, and what a new credential means.

use std::{sync::Arc, time::Duration};

use crate::state::Current;
use credbroker_credential::{Issued, Lifetime, Material, Now};
use credbroker_observe::backoff::full_jitter;

/// A credential with a shorter lifetime cannot give a client a margin of five minutes.
const SHORT: Duration = Duration::from_secs(12 * 60);

/// The longest time for which a caller gets one of the first failures again, without a run.
const HELD: Duration = Duration::from_secs(3);

/// The longest time for which a caller gets any failure again.
const HELD_LONGEST: Duration = Duration::from_secs(30);

/// How long before its expiry a credential that lives `lifetime` is renewed, for `u` uniform in [0, 1).
///
/// A client that itself renews five minutes early (Python's) never sees the last five minutes of an ordinary credential,
/// and credentials of the same age are not all renewed at once. A short-lived credential cannot give that margin, and is
/// renewed after a share of its lifetime.
pub(super) fn lead(lifetime: Duration, u: f64) -> Duration {
    let share = lifetime.mul_f64(0.20 + 0.10 * u);
    if lifetime < SHORT {
        return share;
    }
    let margin = Duration::from_secs_f64(360.0 + 90.0 * u);
    share.max(margin.min(lifetime.mul_f64(0.42 + 0.10 * u)))
}

/// How long after the `attempts`th failure in a row no refresh starts: full jitter up to 2 s, 4 s, 8 s … 60 s, and at
/// least one second.
pub(crate) fn back_off(attempts: u32, u: f64) -> Duration {
    full_jitter(attempts, Duration::from_secs(2), Duration::from_secs(60), u).max(Duration::from_secs(1))
}

/// How long a caller, and a caller at a terminal, get the `attempts`th failure in a row again without a run. The time is
/// short, so that a login takes effect at once; it is longer from the sixth failure on, so that a wrong password does not
/// lock the account.
pub(crate) fn hold(attempts: u32, back_off: Duration) -> (Duration, Duration) {
    let short = back_off.min(HELD);
    let doubled = HELD * 2_u32.saturating_pow(attempts.saturating_sub(5).min(8));
    (if attempts <= 5 { short } else { doubled.min(HELD_LONGEST) }, short)
}

/// When to run a plugin again that returned the same credential: it has a cache itself.
pub(super) fn unchanged_retry(left: Duration) -> Duration {
    (left / 3).clamp(Duration::from_secs(10), Duration::from_secs(300))
}

/// What a new credential means for the one that is held (`old`). `due_in` is the time until the next refresh.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// The same credential: generation, lifetime and expiry stay; only the next refresh moves.
    Unchanged(Current),
    /// The same material with another expiry: the generation stays.
    Extended { old: Arc<Issued>, due_in: Duration },
    /// Another credential.
    Rotated { due_in: Duration },
}

/// Compares the credential that arrived at `now` with the current one. `file` is the version of the plugin's file that
/// ran.
pub(crate) fn replace(
    old: Option<&Current>,
    material: &Material,
    lifetime: Lifetime,
    now: Now,
    u: f64,
    file: u64,
) -> Replacement {
    let left = lifetime.left(now.wall);
    // A credential that is accepted within the skew tolerance is served to its end before the plugin runs again.
    let lead = if lifetime.within_skew { Duration::ZERO } else { lead(left, u) };
    let due_in = left.saturating_sub(lead);
    match old.filter(|old| old.issued.is_same_as(material)) {
        Some(old) if old.issued.expires_at == lifetime.expires_at && old.issued.is_valid_at(now) => {
            // Either clock may end it: a step back of the wall clock extends nothing.
            Replacement::Unchanged(old.again(unchanged_retry(old.issued.left(now)), now, file))
        }
        Some(old) => Replacement::Extended { old: Arc::clone(&old.issued), due_in },
        None => Replacement::Rotated { due_in },
    }
}
