//! The state of one key.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    CacheError, Failed,
    attention::Attention,
    flight::Flight,
    policy,
    rejection::{self, Rejections},
};
use credbroker_credential::{Generation, Issued, Now};
use credbroker_observe::metrics::RunReason;
use credbroker_plugin::{PluginSpec, Retirement};
use credbroker_runner::PROBE_EVERY;

/// Replaced generations that are remembered for each key.
const REMEMBERED: usize = 4;

/// The state of one key.
#[derive(Debug, Default)]
pub(crate) struct KeyState {
    /// The last credential that passed every check, valid or not.
    pub current: Option<Current>,
    /// Whether the credential came out of the terminal of a caller, which could have forged it.
    pub is_leased: bool,
    /// The failure of the last run; `None` after a success.
    pub failure: Option<Failure>,
    /// The run whose outcome is kept: queued or in progress.
    pub flight: Option<Arc<Flight>>,
    /// What is known about rejections; `None` before the first one.
    pub rejections: Option<Box<Rejections>>,
    /// The numbers of the last generations that were replaced or evicted, the newest first; 0: none.
    pub replaced: [u64; REMEMBERED],
    /// When a login last succeeded, since boot.
    pub logged_in: Option<Duration>,
    /// What is known about the persons that it needs.
    pub attention: Attention,
    /// Why the provider is no longer in force; `None`: it is. Nothing is served, run or kept afterwards.
    pub retired: Option<Retirement>,
}

impl KeyState {
    /// The state of a new key.
    pub(crate) fn of(spec: &PluginSpec) -> Self {
        Self { attention: Attention::of(spec.provider.interactive), ..Self::default() }
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
        let failure = self.failure.as_ref().filter(|failure| failure.error.own_pause().is_some())?;
        failure.is_held(now, false).then(|| failure.at(now, false))
    }

    /// Why a run that starts at `now` is needed, if the plugin's file has the version `file`.
    pub(crate) fn reason(&self, file: u64, now: Now) -> RunReason {
        match (self.valid(now), &self.failure, &self.current) {
            (Some(current), ..) if current.file != file => RunReason::PluginChanged,
            (Some(_), ..) => RunReason::Refresh,
            (None, Some(_), _) => RunReason::Retry,
            (None, None, Some(_)) => RunReason::Expired,
            (None, None, None) => RunReason::First,
        }
    }

    /// Replaces the credential and forgets the failure.
    pub(crate) fn accept(&mut self, current: Current) {
        let is_same = |old: &Current| old.issued.generation == current.issued.generation;
        if !self.current.as_ref().is_some_and(is_same) {
            self.forget_credential();
        }
        (self.current, self.failure) = (Some(current), None);
    }

    /// Forgets everything but the names of earlier generations. Returns the run in flight.
    pub(crate) fn clear(&mut self) -> Option<Arc<Flight>> {
        self.forget_credential();
        (self.failure, self.rejections, self.attention) = (None, None, self.attention.forgotten());
        self.is_leased = false;
        self.logged_in = None;
        self.flight.take()
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
    pub(super) was_due: bool,
    /// The version of the plugin's file that ran last. The credential is due when the file has another one.
    file: u64,
}

impl Current {
    /// A credential to renew `due_in` after `now`, or when the plugin's file is no longer of version `file`.
    pub(crate) fn new(issued: Arc<Issued>, due_in: Duration, now: Now, file: u64) -> Self {
        let (due_wall, due_boot) = (now.wall + due_in, now.boot.saturating_add(due_in));
        Self { issued, due_wall, due_boot, was_due: false, file }
    }

    /// The same credential, for which the plugin returned nothing newer: to be tried again `due_in` after `now`.
    pub(crate) fn again(&self, due_in: Duration, now: Now, file: u64) -> Self {
        let was_due = self.was_due || self.has_passed(now);
        Self { was_due, ..Self::new(Arc::clone(&self.issued), due_in, now, file) }
    }

    /// Whether it was never due: then a caller that asks for another credential has seen this one rejected.
    pub(crate) fn is_fresh_at(&self, now: Now) -> bool {
        !self.was_due && !self.has_passed(now)
    }

    /// Whether it is time to renew it, if the plugin's file has the version `file`.
    pub(crate) fn is_due_at(&self, now: Now, file: u64) -> bool {
        self.is_changed(file) || self.has_passed(now)
    }

    /// Whether the plugin's file is no longer the one that ran.
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

/// Why the last run brought no credential, held so that it is not repeated at once. Times are since boot: a step of the
/// wall clock must not extend them.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The error when the run ended.
    pub error: CacheError,
    pub failed_at: Duration,
    /// Failures in a row.
    pub attempts: u32,
    /// Throttled runs since the last credential.
    pub throttled: u32,
    /// No refresh starts before this time.
    pub refresh_at: Duration,
    /// A caller gets the failure again before this time.
    pub ask_at: Duration,
    /// The same for a caller at a terminal.
    pub terminal_at: Duration,
}

impl Failure {
    /// What a caller gets at `now`.
    pub(crate) fn at(&self, now: Now, at_terminal: bool) -> Failed {
        let until = if at_terminal { self.terminal_at } else { self.ask_at };
        let error = self.error.after(now.boot.saturating_sub(self.failed_at));
        let retry_after = error.pause().unwrap_or_else(|| until.saturating_sub(now.boot));
        Failed { error, retry_after }
    }

    /// Whether a caller that asks at `now` gets the failure without a run.
    pub(crate) fn is_held(&self, now: Now, at_terminal: bool) -> bool {
        now.boot < if at_terminal { self.terminal_at } else { self.ask_at }
    }

    /// The failure that follows `last`. A pause is not an attempt. That of the issuer is not held here: the scheduler knows
    /// when it ends. That of the key is: if the key `holds` a valid credential, its renewal is tried as often as a paused
    /// issuer.
    pub(crate) fn after(last: Option<&Self>, error: CacheError, holds: bool, now: Now, u: f64) -> Self {
        let (before, throttled) = last.map_or((0, 0), |last| (last.attempts, last.throttled));
        let until = |held: Duration| now.boot.saturating_add(held);
        let failed_at = now.boot;
        if let Some(pause) = error.pause() {
            let is_own = error.own_pause().is_some();
            let (attempts, throttled) = (before, throttled.saturating_add(u32::from(is_own)));
            let at = if is_own { until(pause) } else { failed_at };
            let refresh_at = if holds { at.min(until(PROBE_EVERY)) } else { at };
            return Self { error, failed_at, attempts, throttled, refresh_at, ask_at: at, terminal_at: at };
        }
        let attempts = before.saturating_add(1);
        let back_off = policy::back_off(attempts, u);
        let (ask, terminal) = policy::hold(attempts, back_off);
        Self {
            error,
            failed_at,
            attempts,
            throttled,
            refresh_at: until(back_off),
            ask_at: until(ask),
            terminal_at: until(terminal),
        }
    }
}
