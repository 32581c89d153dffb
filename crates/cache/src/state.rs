//! The state of one key, and what to do for it, when. Pure functions of state and time.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    error::{CacheError, Failed, Failure},
    lasting::LastRun,
    prompts::{Asker, Prompts, Unattended},
    rejection::{self, Rejections},
    run::Run,
};
use credbroker_credential::{Generation, Issued, Lifetime, Material, Now};
use credbroker_observe::metrics::{RunOutcome, RunReason};
use credbroker_plugin::PluginSpec;
use credbroker_proto::v1alpha1::credential_state::Cause as RunCause;
use credbroker_runner::Urgency;

/// An entry without a valid credential is forgotten when there was no request for it in this time.
pub(crate) const IDLE: Duration = Duration::from_secs(300);
/// A queued run is abandoned when there was no request for its key in this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Replaced generations that are remembered for each key.
const REMEMBERED: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct KeyState {
    /// The [account](super::entry::KeyEntry::account) that all of this is about.
    pub account: u64,
    /// The last credential that passed every check, valid or not.
    pub current: Option<Current>,
    /// Whether the credential came out of the terminal of a caller, which could have forged it.
    pub is_leased: bool,
    /// The failure of the last run; `None` after a success.
    pub failure: Option<Arc<Failure>>,
    /// The run whose outcome is kept: queued or in progress.
    pub run: Option<Arc<Run>>,
    /// What is known about rejections; `None` before the first one.
    pub rejections: Option<Box<Rejections>>,
    /// The numbers of the last generations that were replaced or evicted, the newest first; 0: none.
    pub replaced: [u64; REMEMBERED],
    /// Counts evictions. Watches of an evicted credential end.
    pub evictions: u64,
    /// When a login last succeeded, since boot.
    pub logged_in: Option<Duration>,
    pub prompts: Prompts,
}

impl KeyState {
    pub(crate) fn of(spec: &PluginSpec) -> Self {
        Self { prompts: Prompts::of(spec.provider.interactive), ..Self::default() }
    }

    /// The credential, if it may be served at `now`.
    pub(crate) fn valid(&self, now: Now) -> Option<&Current> {
        self.current.as_ref().filter(|current| current.issued.is_valid_at(now))
    }

    /// The credential that answers another login at `now`: one succeeded a short time ago.
    pub(crate) fn after_login(&self, now: Now) -> Option<Arc<Issued>> {
        let is_recent = self.logged_in.is_some_and(|at| now.boot.saturating_sub(at) < rejection::PAUSE);
        self.valid(now).filter(|_| is_recent).map(|current| Arc::clone(&current.issued))
    }

    /// What a caller gets at `now` because its runs were throttled.
    pub(crate) fn paused(&self, now: Now) -> Option<Failed> {
        let is_of_key = |failure: &&Arc<Failure>| failure.error.pause().is_some_and(|(_, of_key)| of_key);
        let failure = self.failure.as_ref().filter(is_of_key)?;
        failure.is_held(now).then(|| failure.at(now, false))
    }

    /// Why a run that starts at `now` is needed, if the plugin's file has the version `file`; `is_awaited`: a caller does not
    /// get what is held.
    pub(crate) fn reason(&self, is_awaited: bool, file: u64, now: Now) -> RunReason {
        match (self.valid(now), &self.failure, &self.current) {
            (Some(current), ..) if current.file != file => RunReason::PluginChanged,
            (Some(_), ..) if is_awaited => RunReason::MinLifetime,
            (Some(_), ..) => RunReason::Refresh,
            (None, Some(_), _) => RunReason::Retry,
            (None, None, Some(_)) => RunReason::Expired,
            (None, None, None) => RunReason::First,
        }
    }

    /// Replaces the credential, and forgets the failure and the last verification.
    pub(crate) fn accept(&mut self, current: Current) {
        let is_same = |old: &Current| old.issued.generation == current.issued.generation;
        if !self.current.as_ref().is_some_and(is_same) {
            self.forget_credential();
        }
        (self.current, self.failure) = (Some(current), None);
        if let Some(rejections) = &mut self.rejections {
            rejections.verification = None;
        }
    }

    /// Forgets everything but the names of earlier generations. Returns the run in flight.
    pub(crate) fn clear(&mut self) -> Option<Arc<Run>> {
        self.forget_credential();
        (self.failure, self.rejections, self.prompts) = (None, None, self.prompts.forgotten());
        self.is_leased = false;
        self.logged_in = None;
        self.run.take()
    }

    /// Whether `generation` is one of the last that this key had before the current one.
    pub(crate) fn was_replaced(&self, epoch: &Arc<str>, generation: &str) -> bool {
        let mut replaced = self.replaced.iter().filter(|number| **number > 0);
        replaced.any(|number| Generation::new(Arc::clone(epoch), *number).to_string() == generation)
    }

    fn forget_credential(&mut self) {
        if let Some(old) = self.current.take() {
            self.replaced.rotate_right(1);
            self.replaced[0] = old.issued.generation.number();
        }
    }
}

/// A credential, and when to renew it: as soon as either clock says so.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub issued: Arc<Issued>,
    due_wall: SystemTime,
    due_boot: Duration,
    /// It was due before, and the plugin returned nothing newer.
    pub was_due: bool,
    /// The version of the plugin's file that ran last. The credential is due when the file has another one.
    file: u64,
    last_run: LastRun,
}

impl Current {
    /// A credential to renew `due_in` after `now`, or when the plugin's file is no longer of version `file`.
    pub(crate) fn new(issued: Arc<Issued>, due_in: Duration, now: Now, file: u64) -> Self {
        let (due_wall, due_boot) = (now.wall + due_in, now.boot.saturating_add(due_in));
        let last_run = LastRun::of(&issued, now);
        Self { issued, due_wall, due_boot, was_due: false, file, last_run }
    }

    /// The same credential, for which the plugin returned nothing newer: to be tried again `due_in` after `now`.
    pub(crate) fn again(&self, due_in: Duration, now: Now, file: u64) -> Self {
        let was_due = self.was_due || self.has_passed(now);
        Self { was_due, ..Self::new(Arc::clone(&self.issued), due_in, now, file) }
    }

    /// The same credential after a run at `now` that a caller needed earlier than it is due: when it is due does not change.
    pub(crate) fn still(&self, now: Now) -> Self {
        Self { last_run: LastRun::of(&self.issued, now), ..self.clone() }
    }

    /// Whether it lives shorter than `min_lifetime` from `now`, and a run may bring a credential that lives longer.
    pub(crate) fn is_improvable(&self, min_lifetime: Duration, now: Now) -> bool {
        self.issued.is_shorter_than(min_lifetime, now) && self.last_run.is_repeatable(min_lifetime, now)
    }

    /// Whether it was never due: then a caller that asks for another credential has seen this one rejected.
    pub(crate) fn is_fresh_at(&self, now: Now) -> bool {
        !self.was_due && !self.has_passed(now)
    }

    /// Whether it is time to renew it, if the plugin's file has the version `file`.
    pub(crate) fn is_due_at(&self, now: Now, file: u64) -> bool {
        self.is_changed(file) || self.has_passed(now)
    }

    pub(crate) fn is_changed(&self, file: u64) -> bool {
        self.file != file
    }

    /// How long after `now` it is due.
    pub(crate) fn due_in(&self, now: Now, file: u64) -> Duration {
        if self.is_changed(file) {
            return Duration::ZERO;
        }
        let wall = self.due_wall.duration_since(now.wall).unwrap_or_default();
        wall.min(self.due_boot.saturating_sub(now.boot))
    }

    fn has_passed(&self, now: Now) -> bool {
        now.wall >= self.due_wall || now.boot >= self.due_boot
    }
}

#[derive(Debug)]
pub(crate) enum Decision {
    /// The credential is valid, and a refresh of it may be due.
    Serve { issued: Arc<Issued>, refresh: bool },
    /// There is none that lives long enough: wait for the run in flight, or start one.
    Wait,
    /// There is none, and it is too early to try again.
    Fail(Failed),
}

/// Decides what `asker` gets at `now`: never an expired credential. One that lives shorter than `min_lifetime` is served only
/// if no run can be made for a better one now.
pub(crate) fn decide(
    state: &KeyState,
    (asker, min_lifetime): (Asker, Duration),
    file: u64,
    now: Now,
) -> Decision {
    let Some(current) = state.valid(now) else {
        let refusal = state.prompts.refusal(asker).filter(|_| state.run.is_none());
        if let Some(refusal) = refusal {
            return Decision::Fail(CacheError::Unattended(refusal).into());
        }
        let at_terminal = matches!(asker, Asker::Person { .. });
        // A user rather waits for a run in progress.
        let held = state.failure.as_ref().filter(|_| !at_terminal || state.run.is_none());
        let held = held.filter(|failure| failure.answers(asker, now));
        // That there was no terminal says nothing about a run that has one.
        let held = held.filter(|failure| !(asker.lends() && failure.error.needs_terminal()));
        return held.map_or(Decision::Wait, |failure| Decision::Fail(failure.at(now, at_terminal)));
    };
    // The caller has a valid credential otherwise: neither a user at a terminal nor a run in flight shortens a back-off.
    let is_held_back = backs_off(state, now) || state.failure.as_ref().is_some_and(|held| held.is_held(now));
    if current.is_improvable(min_lifetime, now) && !is_held_back && state.prompts.refusal(asker).is_none() {
        return Decision::Wait;
    }
    let issued = Arc::clone(&current.issued);
    let may_refresh =
        state.run.is_none() && !backs_off(state, now) && state.prompts.refusal(Asker::Broker).is_none();
    Decision::Serve { issued, refresh: may_refresh && current.is_due_at(now, file) }
}

fn backs_off(state: &KeyState, now: Now) -> bool {
    state.failure.as_ref().is_some_and(|failure| now.boot < failure.refresh_at)
}

/// How a request begins.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum FirstStep {
    #[default]
    Decide,
    /// With the outcome of the run in flight, if there still is one.
    Join,
    /// With the outcome of a run: for a login, or for a credential that was rejected or seems to be.
    Run,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub idle: Duration,
    pub watched: bool,
    /// Callers wait for it, or watch it.
    pub awaited: bool,
    pub file: u64,
    pub timeout: Duration,
    pub uid: Option<u32>,
}

/// What the maintenance does for an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NextAction {
    Keep,
    /// Starts a refresh: one is due and the credential is used.
    Refresh(Urgency),
    /// Gives a queued refresh this urgency.
    Adjust(Urgency),
    /// Ends a queued refresh, which is no longer needed.
    Abandon,
    /// Forgets the entry: it has no valid credential and is not used.
    Forget,
}

pub(crate) fn next_action(state: &KeyState, usage: Usage, now: Now) -> NextAction {
    let valid = state.valid(now);
    let used = usage.watched || valid.is_some_and(|current| usage.idle <= current.issued.lifetime);
    // Little time is left for two runs: it must not wait for other background work.
    let soon = |issued: &Issued| issued.left(now) < (2 * usage.timeout).max(issued.lifetime / 10);
    let is_urgent = used && valid.is_none_or(|current| soon(&current.issued));
    let urgency = if is_urgent { Urgency::Urgent { uid: usage.uid } } else { Urgency::Background };
    match outlook(state, usage, None, now) {
        (RunCause::InProgress, _) => {
            let due = valid.is_some_and(|current| current.is_due_at(now, usage.file));
            let abandon = !usage.awaited && if due { !used } else { usage.idle >= ABANDONED_AFTER };
            if abandon { NextAction::Abandon } else { NextAction::Adjust(urgency) }
        }
        (cause, Some(Duration::ZERO)) if !matches!(cause, RunCause::NotInUse | RunCause::NextRequest) => {
            NextAction::Refresh(urgency)
        }
        // One with a failure stays until the end of its back-off, and one that needs a person until it is evicted: the prompts
        // of its plugin must not begin again.
        _ if valid.is_none()
            && !usage.awaited
            && usage.idle >= IDLE
            && !backs_off(state, now)
            && !state.prompts.is_needed() =>
        {
            NextAction::Forget
        }
        _ => NextAction::Keep,
    }
}

/// Why and how long after `now` the next run starts, if nothing changes; `paused`: how long the issuer's pause lasts.
/// `None`: the cause does not wait for a time.
pub(crate) fn outlook(
    state: &KeyState,
    usage: Usage,
    paused: Option<Duration>,
    now: Now,
) -> (RunCause, Option<Duration>) {
    let until = |at: Option<Duration>| at.map_or(Duration::ZERO, |at| at.saturating_sub(now.boot));
    let failure = state.failure.as_ref();
    let back_off = until(failure.map(|failure| failure.refresh_at));
    let (cause, wait) = match (state.prompts.refusal(Asker::Broker), state.valid(now)) {
        _ if state.run.is_some() => return (RunCause::InProgress, None),
        (Some(Unattended::Unanswered), _) => return (RunCause::LoginNeeded, None),
        (Some(_), _) => return (RunCause::UserNeeded, None),
        (None, Some(current)) => {
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
        (None, None) if usage.watched && back_off > Duration::ZERO => (RunCause::BackOff, back_off),
        (None, None) if usage.watched => (RunCause::Watched, Duration::ZERO),
        (None, None) => (RunCause::NextRequest, until(failure.map(|failure| failure.ask_at))),
    };
    match paused.filter(|paused| *paused > wait) {
        Some(paused) => (RunCause::IssuerPaused, Some(paused)),
        None => (cause, Some(wait)),
    }
}

/// How long after `now` a credential in use is renewed. `None`: a run is in flight, or only a request starts one.
pub(crate) fn next_refresh(state: &KeyState, usage: Usage, now: Now) -> Option<Duration> {
    let (cause, wait) = outlook(state, usage, None, now);
    let is_due = || state.valid(now).is_some_and(|current| current.is_due_at(now, usage.file));
    wait.filter(|_| match cause {
        RunCause::NextRequest => false,
        RunCause::NotInUse => !is_due(),
        _ => true,
    })
}

/// A credential with a shorter lifetime cannot give a client a margin of five minutes.
const SHORT: Duration = Duration::from_secs(12 * 60);

/// How long before its expiry a credential that lives `lifetime` is renewed, for `u` uniform in [0, 1).
///
/// A client that itself renews five minutes early (Python's) never sees the last five minutes of an ordinary credential,
/// and credentials of the same age are not all renewed at the same time. A short-lived credential cannot give that margin, and is
/// renewed after a share of its lifetime.
fn lead(lifetime: Duration, u: f64) -> Duration {
    let share = lifetime.mul_f64(0.20 + 0.10 * u);
    if lifetime < SHORT {
        return share;
    }
    let margin = Duration::from_secs_f64(360.0 + 90.0 * u);
    share.max(margin.min(lifetime.mul_f64(0.42 + 0.10 * u)))
}

/// How a credential that arrives at `now` compares with the one that is held (`old`), and the time until the next refresh.
/// If it is unchanged, generation, lifetime and expiry stay. If the same material has another expiry, it is extended: the
/// generation stays. Otherwise it is rotated.
pub(crate) fn renewal(
    old: Option<&Current>,
    material: &Material,
    lifetime: Lifetime,
    now: Now,
    u: f64,
) -> (RunOutcome, Duration) {
    let left = lifetime.left(now.wall);
    // A credential that is accepted within the skew tolerance is served to its end before the plugin runs again.
    let lead = if lifetime.within_skew { Duration::ZERO } else { lead(left, u) };
    match old.map(|old| &old.issued).filter(|old| old.is_same_as(material)) {
        // Either clock may end it: a step back of the wall clock extends nothing.
        Some(old) if old.expires_at == lifetime.expires_at && old.is_valid_at(now) => {
            // The plugin has a cache itself.
            let retry = (old.left(now) / 3).clamp(Duration::from_secs(10), Duration::from_secs(300));
            (RunOutcome::Unchanged, retry)
        }
        Some(_) => (RunOutcome::Extended, left.saturating_sub(lead)),
        None => (RunOutcome::Rotated, left.saturating_sub(lead)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
