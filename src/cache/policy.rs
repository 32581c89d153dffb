//! What to do for an entry, and when. Pure functions of state and time.

#[cfg(test)]
pub(super) mod tests;

use std::{sync::Arc, time::Duration};

use super::{
    CacheError, Failed,
    attention::Asker,
    state::{Current, KeyState},
};
use crate::{
    backoff::full_jitter,
    credential::{Issued, Lifetime, Material, Now},
};

/// An entry without a valid credential is forgotten when there was no request for it in this time.
pub(crate) const IDLE: Duration = Duration::from_secs(300);
/// When the cache is full, an entry is replaced only if there was no request for it in this time.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_secs(60);
/// A queued run is abandoned when there was no request for its key in this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// A credential with a shorter lifetime cannot give a client a margin of five minutes.
const SHORT: Duration = Duration::from_secs(12 * 60);
/// The longest time for which a caller gets one of the first failures again, without a run.
const HELD: Duration = Duration::from_secs(3);
/// The longest time for which a caller gets any failure again.
const HELD_LONGEST: Duration = Duration::from_secs(30);

/// The answer to one request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The credential is valid.
    Serve(Arc<Issued>),
    /// The credential is valid, and a refresh is due.
    ServeAndRefresh(Arc<Issued>),
    /// There is none: wait for the run in flight, or start one.
    Wait,
    /// There is none, and it is too early to try again.
    Fail(Failed),
}

/// Decides what `asker` gets at `now`: never an expired credential.
pub(crate) fn decide(state: &KeyState, asker: Asker, file: u64, now: Now) -> Decision {
    let Some(current) = state.valid(now) else {
        let refusal = state.attention.refusal(asker).filter(|_| state.flight.is_none());
        if let Some(refusal) = refusal {
            return Decision::Fail(CacheError::Unattended(refusal).into());
        }
        // Programs ask again and again.
        let at_terminal = asker != Asker::Program;
        let held = state.failure.as_ref().filter(|failure| failure.is_held(now, at_terminal));
        // That there was no terminal says nothing about a run that has one.
        let held = held.filter(|failure| !(asker.lends() && failure.error.needs_terminal()));
        return held.map_or(Decision::Wait, |failure| Decision::Fail(failure.at(now, at_terminal)));
    };
    let issued = Arc::clone(&current.issued);
    if current.is_due_at(now, file) && may_refresh(state, now) {
        Decision::ServeAndRefresh(issued)
    } else {
        Decision::Serve(issued)
    }
}

fn may_refresh(state: &KeyState, now: Now) -> bool {
    state.flight.is_none() && !backs_off(state, now) && state.attention.refusal(Asker::Broker).is_none()
}

fn backs_off(state: &KeyState, now: Now) -> bool {
    state.failure.as_ref().is_some_and(|failure| now.boot < failure.refresh_at)
}

/// How an entry is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// The time since the last request.
    pub(crate) idle: Duration,
    /// There are open watches.
    pub(crate) watched: bool,
    /// Callers wait for it, or watch it.
    pub(crate) awaited: bool,
    /// The version of the plugin's file.
    pub(crate) file: u64,
    /// The longest time that a run of the plugin may take.
    pub(crate) timeout: Duration,
}

/// What the maintenance does for an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NextAction {
    /// Nothing.
    Keep,
    /// Starts a refresh: one is due and the credential is used.
    Refresh {
        /// The credential expires soon: the run goes before other background work.
        urgent: bool,
    },
    /// Adjusts a queued refresh.
    Adjust {
        /// The credential expires soon: the run goes before other background work.
        urgent: bool,
        /// The refresh is no longer needed.
        abandon: bool,
    },
    /// Forgets the entry: it has no valid credential and is not used.
    Forget,
}

/// What to do for an entry at `now`.
pub(crate) fn next_action(state: &KeyState, usage: Usage, now: Now) -> NextAction {
    let valid = state.valid(now);
    let used = usage.is_used(state, now);
    let urgent = used && valid.is_none_or(|current| expires_soon(&current.issued, usage.timeout, now));
    if state.flight.is_some() {
        let due = valid.is_some_and(|current| current.is_due_at(now, usage.file));
        let abandon = !usage.awaited && if due { !used } else { usage.idle >= ABANDONED_AFTER };
        return NextAction::Adjust { urgent, abandon };
    }
    match valid {
        Some(current) if used && current.is_due_at(now, usage.file) && may_refresh(state, now) => {
            NextAction::Refresh { urgent }
        }
        None if usage.watched && may_refresh(state, now) => NextAction::Refresh { urgent: true },
        // An entry with a failure stays until the end of its back-off, and one that needs a person until it is evicted: the
        // prompts of its plugin must not begin again.
        None if !usage.awaited
            && usage.idle >= IDLE
            && !backs_off(state, now)
            && !state.attention.is_needed() =>
        {
            NextAction::Forget
        }
        _ => NextAction::Keep,
    }
}

/// How long after `now` the maintenance starts a run, if nothing changes. `None`: a run is in flight, or only a request
/// starts one.
pub(crate) fn next_run(state: &KeyState, usage: Usage, now: Now) -> Option<Duration> {
    let due = match state.valid(now) {
        _ if state.flight.is_some() || state.attention.refusal(Asker::Broker).is_some() => return None,
        Some(current) => current.due_in(now, usage.file),
        None => Duration::ZERO,
    };
    let backs_off = state.failure.as_ref().map(|failure| failure.refresh_at.saturating_sub(now.boot));
    (due > Duration::ZERO || usage.is_used(state, now)).then(|| due.max(backs_off.unwrap_or_default()))
}

impl Usage {
    /// Whether the credential is used: it is watched, or it was asked for within its lifetime.
    fn is_used(&self, state: &KeyState, now: Now) -> bool {
        self.watched || state.valid(now).is_some_and(|current| self.idle <= current.issued.lifetime)
    }
}

/// Whether a refresh of `issued` must not wait for other background work.
fn expires_soon(issued: &Issued, timeout: Duration, now: Now) -> bool {
    issued.left(now) < (2 * timeout).max(issued.lifetime / 10)
}

/// How long before its expiry a credential that lives `lifetime` is renewed, for `u` uniform in [0, 1).
///
/// A client that itself renews five minutes early (Python's) never sees the last five minutes of an ordinary credential,
/// and credentials of the same age are not all renewed at once. A short-lived credential cannot give that margin, and is
/// renewed after a share of its lifetime.
pub(crate) fn lead(lifetime: Duration, u: f64) -> Duration {
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
pub(crate) fn unchanged_retry(left: Duration) -> Duration {
    (left / 3).clamp(Duration::from_secs(10), Duration::from_secs(300))
}

/// What a new credential means for the one that is held.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// The same credential: generation, lifetime and expiry stay; only the next refresh moves.
    Unchanged(Current),
    /// The same material with another expiry: the generation stays.
    Extended {
        /// The credential that is held now.
        old: Arc<Issued>,
        /// The time until the next refresh.
        due_in: Duration,
    },
    /// Another credential.
    Rotated {
        /// The time until the next refresh.
        due_in: Duration,
    },
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
