//! When and why the plugin of a key runs next, for people. Pure; the decisions themselves are in `policy`.

use std::time::Duration;

use super::{
    attention::{Asker, Unattended},
    policy::Usage,
    state::KeyState,
};
use credbroker_credential::Now;

/// Why the plugin of a key runs at a time, or does not run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunCause {
    /// A run is queued or in progress.
    InProgress,
    /// The credential is in use, and due at its refresh point.
    RefreshPoint,
    /// The last run returned the same credential, so the plugin is asked again later.
    SameCredential,
    /// The credential is in use, and the file of the plugin has changed.
    PluginChanged,
    /// The last run failed.
    BackOff,
    /// The issuer asked for fewer requests.
    IssuerPaused,
    /// It is watched and has no valid credential.
    Watched,
    /// The plugin reads from a terminal, or a run without a person has failed: a person at a terminal starts the next one.
    PersonNeeded,
    /// Prompts were not answered: only a login starts the next one.
    LoginNeeded,
    /// The credential is valid, and is not in use when it is due: the first request after that starts a run.
    NotInUse,
    /// It has no valid credential: the first request starts a run, and earlier ones get the last failure.
    NextRequest,
}

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
