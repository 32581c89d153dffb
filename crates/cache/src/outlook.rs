//! When and why the plugin of a key runs next, for people. Pure; the decisions themselves are in `policy`.

use std::time::Duration;

use super::{
    attention::{Asker, Unattended},
    policy::Usage,
    state::KeyState,
};
use credbroker_credential::Now;
pub use credbroker_proto::v1::credential_state::Cause as RunCause;

/// Why and how long after `now` the next run starts, if nothing changes; `paused`: how long the issuer's pause lasts.
/// `None`: the cause does not wait for a time.
pub(super) fn outlook(
    state: &KeyState,
    usage: Usage,
    paused: Option<Duration>,
    now: Now,
) -> (RunCause, Option<Duration>) {
    if state.flight.is_some() {
        return (RunCause::InProgress, None);
    }
    match state.attention.refusal(Asker::Broker) {
        Some(Unattended::NeedsPerson | Unattended::NeedsTerminal) => return (RunCause::PersonNeeded, None),
        Some(Unattended::Unanswered) => return (RunCause::LoginNeeded, None),
        None => {}
    }
    let until = |at: Option<Duration>| at.map_or(Duration::ZERO, |at| at.saturating_sub(now.boot));
    let failure = state.failure.as_ref();
    let back_off = until(failure.map(|failure| failure.refresh_at));
    let (cause, wait) = match state.valid(now) {
        Some(current) => {
            let due = current.due_in(now, usage.file);
            let wait = due.max(back_off);
            let is_in_use = usage.watched || usage.idle.saturating_add(wait) <= current.issued.lifetime;
            let cause = match () {
                () if !is_in_use => RunCause::NotInUse,
                () if back_off > due => RunCause::BackOff,
                () if current.is_changed(usage.file) => RunCause::PluginChanged,
                () if current.was_due => RunCause::SameCredential,
                () => RunCause::RefreshPoint,
            };
            (cause, wait)
        }
        None if usage.watched && back_off > Duration::ZERO => (RunCause::BackOff, back_off),
        None if usage.watched => (RunCause::Watched, Duration::ZERO),
        None => (RunCause::NextRequest, until(failure.map(|failure| failure.ask_at))),
    };
    match paused.filter(|paused| *paused > wait) {
        Some(paused) => (RunCause::IssuerPaused, Some(paused)),
        None => (cause, Some(wait)),
    }
}

#[cfg(test)]
mod tests;
