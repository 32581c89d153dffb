//! What a cell holds.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{CacheError, Failed, flight::Flight, policy, rejection::Rejections};
use crate::credential::{Issued, Now};

/// What the cell holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The last credential that passed every check, valid or not.
    pub(crate) current: Option<Current>,
    /// The last run's failure; none after a success.
    pub(crate) failure: Option<Failure>,
    /// The run whose outcome is kept: queued or in progress.
    pub(crate) flight: Option<Arc<Flight>>,
    /// What is known of rejections; none at first.
    pub(crate) rejections: Option<Box<Rejections>>,
}

impl State {
    /// The credential, if it may be served at `now`.
    pub(crate) fn valid(&self, now: Now) -> Option<&Current> {
        self.current.as_ref().filter(|current| current.issued.is_valid_at(now))
    }
}

/// A credential and when to renew it: whichever clock gets there first.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) issued: Arc<Issued>,
    due_wall: SystemTime,
    due_boot: Duration,
    /// It was due before, and the plugin had nothing newer.
    was_due: bool,
    /// Of the plugin's file that ran last: another one makes the credential due.
    file: u64,
}

impl Current {
    /// To be renewed `due_in` after `now`, or when the plugin's file is no longer of version `file`.
    pub(crate) fn new(issued: Arc<Issued>, due_in: Duration, now: Now, file: u64) -> Self {
        let (due_wall, due_boot) = (now.wall + due_in, now.boot.saturating_add(due_in));
        Self { issued, due_wall, due_boot, was_due: false, file }
    }

    /// The same credential again, since the plugin had nothing newer: to be tried again `due_in` after `now`.
    pub(crate) fn again(&self, due_in: Duration, now: Now, file: u64) -> Self {
        let was_due = self.was_due || self.has_passed(now);
        Self { was_due, ..Self::new(Arc::clone(&self.issued), due_in, now, file) }
    }

    /// Whether its refresh point has not come yet: only a rejection is a reason to ask for another one.
    pub(crate) fn is_fresh_at(&self, now: Now) -> bool {
        !self.was_due && !self.has_passed(now)
    }

    /// When it is to be renewed, by the wall clock.
    pub(crate) fn due_wall(&self) -> SystemTime {
        self.due_wall
    }

    /// Whether it is time to renew it, where the plugin's file is of version `file` now.
    pub(crate) fn is_due_at(&self, now: Now, file: u64) -> bool {
        self.file != file || self.has_passed(now)
    }

    fn has_passed(&self, now: Now) -> bool {
        now.wall >= self.due_wall || now.boot >= self.due_boot
    }
}

/// Why the last run brought no credential, held so that it is not repeated at once. Times are since boot: a step of the
/// wall clock must not lengthen them.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: CacheError,
    /// Failures in a row.
    pub(crate) attempts: u32,
    /// Before this, no refresh is started.
    pub(crate) refresh_at: Duration,
    /// Before this, a caller gets the failure again.
    pub(crate) ask_at: Duration,
    /// The same for a caller at a terminal.
    pub(crate) terminal_at: Duration,
}

impl Failure {
    /// What a caller gets at `now`.
    pub(crate) fn at(&self, now: Now, at_terminal: bool) -> Failed {
        let until = if at_terminal { self.terminal_at } else { self.ask_at };
        let retry_after = self.error.pause().unwrap_or_else(|| until.saturating_sub(now.boot));
        Failed { error: self.error.clone(), retry_after }
    }

    /// Whether a caller that asks at `now` gets it without a run.
    pub(crate) fn is_held(&self, now: Now, at_terminal: bool) -> bool {
        now.boot < if at_terminal { self.terminal_at } else { self.ask_at }
    }

    /// The failure that follows `last`. A pause of the issuer is not an attempt, and is not held here: the scheduler knows
    /// when it ends.
    pub(crate) fn after(last: Option<&Self>, error: CacheError, now: Now, u: f64) -> Self {
        let before = last.map_or(0, |last| last.attempts);
        let until = |held: Duration| now.boot.saturating_add(held);
        if error.pause().is_some() {
            let (attempts, now) = (before, now.boot);
            return Self { error, attempts, refresh_at: now, ask_at: now, terminal_at: now };
        }
        let attempts = before.saturating_add(1);
        let back_off = policy::back_off(attempts, u);
        let (ask, terminal) = policy::hold(attempts, back_off);
        Self {
            error,
            attempts,
            refresh_at: until(back_off),
            ask_at: until(ask),
            terminal_at: until(terminal),
        }
    }
}
