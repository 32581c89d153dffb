//! What to do with an entry, and when. Pure functions of state and time.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use super::{
    Failed,
    state::{Current, State},
};
use crate::{
    backoff::full_jitter,
    credential::{Issued, Lifetime, Material, Now},
};

/// An entry without a valid credential is forgotten when it was not asked for during this time.
pub(crate) const IDLE: Duration = Duration::from_secs(300);
/// When the cache is full, only an entry that was not asked for during this time gives way.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_secs(60);
/// A run that waits for its turn is given up when its key was not asked for during this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Below this lifetime a credential cannot give a client a margin of five minutes.
const SHORT: Duration = Duration::from_secs(12 * 60);
/// A caller gets one of the first failures again, without a run, for so long at most.
const HELD: Duration = Duration::from_secs(3);
/// How long a caller gets a failure again at most.
const HELD_LONGEST: Duration = Duration::from_secs(30);

/// Answer to one request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The credential is valid.
    Serve(Arc<Issued>),
    /// The credential is valid, and it is time for the next one.
    ServeAndRefresh(Arc<Issued>),
    /// There is none: wait for the run in flight, or start one.
    Wait,
    /// There is none, and it is too early to try again.
    Fail(Failed),
}

/// What a request at `now` gets. Never an expired credential.
pub(crate) fn decide(state: &State, at_terminal: bool, file: u64, now: Now) -> Decision {
    let Some(current) = state.valid(now) else {
        let held = state.failure.as_ref().filter(|failure| failure.is_held(now, at_terminal));
        return held.map_or(Decision::Wait, |failure| Decision::Fail(failure.at(now, at_terminal)));
    };
    let issued = Arc::clone(&current.issued);
    if current.is_due_at(now, file) && may_refresh(state, now) {
        Decision::ServeAndRefresh(issued)
    } else {
        Decision::Serve(issued)
    }
}

fn may_refresh(state: &State, now: Now) -> bool {
    state.flight.is_none() && state.failure.as_ref().is_none_or(|failure| now.boot >= failure.refresh_at)
}

/// What is known about the use of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Since the last request.
    pub(crate) idle: Duration,
    /// There are open watches.
    pub(crate) watched: bool,
    /// Callers wait for it, or watch it.
    pub(crate) awaited: bool,
    /// Version of the plugin's file.
    pub(crate) file: u64,
    /// The longest that a run of the plugin may take.
    pub(crate) timeout: Duration,
}

/// What the periodic look at an entry finds to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Care {
    /// Nothing.
    Keep,
    /// Start a refresh: it is due and the credential is used. `urgent`: it ends soon.
    Refresh {
        /// Goes before other background work.
        urgent: bool,
    },
    /// The refresh that waits for its turn is urgent by now, or is not needed any more.
    Queued {
        /// Goes before other background work.
        urgent: bool,
        /// Give it up.
        abandon: bool,
    },
    /// Forget it: there is nothing to serve and it is not used.
    Drop,
}

/// What to do for an entry at `now`.
pub(crate) fn care(state: &State, usage: Usage, now: Now) -> Care {
    let valid = state.valid(now);
    let used = usage.watched || valid.is_some_and(|current| usage.idle <= current.issued.lifetime);
    let urgent = used && valid.is_none_or(|current| ends_soon(&current.issued, usage.timeout, now));
    if state.flight.is_some() {
        let due = valid.is_some_and(|current| current.is_due_at(now, usage.file));
        let abandon = !usage.awaited && if due { !used } else { usage.idle >= ABANDONED_AFTER };
        return Care::Queued { urgent, abandon };
    }
    match valid {
        Some(current) if used && current.is_due_at(now, usage.file) && may_refresh(state, now) => {
            Care::Refresh { urgent }
        }
        None if usage.watched && may_refresh(state, now) => Care::Refresh { urgent: true },
        // With a failure its back-off would be forgotten.
        None if !usage.awaited && usage.idle >= IDLE && may_refresh(state, now) => Care::Drop,
        _ => Care::Keep,
    }
}

/// Whether a refresh of `issued` may not wait behind other background work.
fn ends_soon(issued: &Issued, timeout: Duration, now: Now) -> bool {
    issued.left(now) < (2 * timeout).max(issued.lifetime / 10)
}

/// How long before its expiry a credential that lives `lifetime` is renewed, for `u` uniform in [0, 1).
///
/// A client with a five-minute margin of its own (Python's) never sees the last five minutes of an ordinary credential,
/// and equal credentials are not renewed all at once. A short one cannot give that margin, and gets a share of its
/// lifetime.
pub(crate) fn lead(lifetime: Duration, u: f64) -> Duration {
    let share = lifetime.mul_f64(0.20 + 0.10 * u);
    if lifetime < SHORT {
        return share;
    }
    let margin = Duration::from_secs_f64(360.0 + 90.0 * u);
    share.max(margin.min(lifetime.mul_f64(0.42 + 0.10 * u)))
}

/// How long after the `attempts`th failure in a row no refresh is started: full jitter up to 2 s, 4 s, 8 s … 60 s, and
/// never under a second.
pub(crate) fn back_off(attempts: u32, u: f64) -> Duration {
    full_jitter(attempts, Duration::from_secs(2), Duration::from_secs(60), u).max(Duration::from_secs(1))
}

/// How long a caller, and a caller at a terminal, get the `attempts`th failure in a row again. Short, so that a login
/// helps at once; longer from the sixth on, so that a wrong password does not lock the account.
pub(crate) fn hold(attempts: u32, back_off: Duration) -> (Duration, Duration) {
    let short = back_off.min(HELD);
    let doubled = HELD * 2_u32.saturating_pow(attempts.saturating_sub(5).min(8));
    (if attempts <= 5 { short } else { doubled.min(HELD_LONGEST) }, short)
}

/// When to ask a plugin again that returned what it had returned before: it has its own cache.
pub(crate) fn unchanged_retry(left: Duration) -> Duration {
    (left / 3).clamp(Duration::from_secs(10), Duration::from_secs(300))
}

/// What a new credential means for the one that is held.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// The same again: generation, lifetime and expiry stay; only the next try moves.
    Unchanged(Current),
    /// The same material lives longer (or shorter): the generation stays.
    Extended {
        /// What is held now.
        old: Arc<Issued>,
        /// Until its refresh point.
        due_in: Duration,
    },
    /// A rotation.
    Rotated {
        /// Until its refresh point.
        due_in: Duration,
    },
}

/// Compares the credential that arrived at `now` with the one that is held. `file` is the version of the plugin that
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
    // A credential lent within the skew tolerance is used up before the plugin runs again.
    let lead = if lifetime.within_skew { Duration::ZERO } else { lead(left, u) };
    let due_in = left.saturating_sub(lead);
    match old.filter(|old| old.issued.is_same_as(material)) {
        Some(old) if old.issued.expires_at == lifetime.expires_at && old.issued.is_valid_at(now) => {
            // By whichever clock ends it first: a step back lengthens nothing.
            Replacement::Unchanged(old.again(unchanged_retry(old.issued.left(now)), now, file))
        }
        Some(old) => Replacement::Extended { old: Arc::clone(&old.issued), due_in },
        None => Replacement::Rotated { due_in },
    }
}
