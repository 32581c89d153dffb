//! What to do for an entry, and when. Pure functions of state and time.

mod renewal;
#[cfg(test)]
pub(super) mod tests;

use std::{sync::Arc, time::Duration};

pub(crate) use self::renewal::{Replacement, back_off, hold, replace};
use super::{CacheError, Failed, attention::Asker, state::KeyState};
use credbroker_credential::{Issued, Now};
use credbroker_runner::Urgency;

/// An entry without a valid credential is forgotten when there was no request for it in this time.
pub(crate) const IDLE: Duration = Duration::from_secs(300);
/// When the cache is full, an entry is replaced only if there was no request for it in this time.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_secs(60);
/// A queued run is abandoned when there was no request for its key in this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
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
    pub idle: Duration,
    /// There are open watches.
    pub watched: bool,
    /// Callers wait for it, or watch it.
    pub awaited: bool,
    /// The version of the plugin's file.
    pub file: u64,
    /// The longest time that a run of the plugin may take.
    pub timeout: Duration,
}

/// What the maintenance does for an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NextAction {
    /// Nothing.
    Keep,
    /// Starts a refresh: one is due and the credential is used.
    Refresh(Urgency),
    /// Adjusts a queued refresh.
    Adjust {
        /// Its urgency now.
        urgency: Urgency,
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
    let is_urgent = used && valid.is_none_or(|current| expires_soon(&current.issued, usage.timeout, now));
    let urgency = if is_urgent { Urgency::Urgent } else { Urgency::Background };
    if state.flight.is_some() {
        let due = valid.is_some_and(|current| current.is_due_at(now, usage.file));
        let abandon = !usage.awaited && if due { !used } else { usage.idle >= ABANDONED_AFTER };
        return NextAction::Adjust { urgency, abandon };
    }
    match valid {
        Some(current) if used && current.is_due_at(now, usage.file) && may_refresh(state, now) => {
            NextAction::Refresh(urgency)
        }
        None if usage.watched && may_refresh(state, now) => NextAction::Refresh(Urgency::Urgent),
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
