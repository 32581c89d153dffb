//! What a cell holds.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{CacheError, Failed, rejection::Rejections};
use crate::credential::{Issued, Now};

/// What the cell holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The last credential that passed every check, valid or not.
    pub(crate) current: Option<Current>,
    /// The last run's failure; none after a success.
    pub(crate) failure: Option<Failure>,
    /// A run is in flight: there is exactly one [`Turn`].
    pub(crate) running: bool,
    /// Runs that ended. Whoever waits, waits for it to grow.
    pub(crate) finished: u64,
    /// Reports that the API server refused the credential.
    pub(crate) rejections: Rejections,
    /// The run in flight was started before somebody asked to forget: what it brings is renewed at once.
    pub(crate) outdated: bool,
}

impl State {
    /// A run brought `current`.
    pub(crate) fn take(&mut self, current: Current, now: Now) {
        let generation = |held: &Current| held.issued.generation.number();
        if self.current.as_ref().map(generation) != Some(generation(&current)) {
            self.rejections.rotated();
        }
        self.current = Some(if self.outdated { current.due_now(now) } else { current });
        self.failure = None;
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
}

impl Current {
    /// To be renewed `due_in` after `now`.
    pub(crate) fn new(issued: Arc<Issued>, due_in: Duration, now: Now) -> Self {
        let (due_wall, due_boot) = (now.wall + due_in, now.boot.saturating_add(due_in));
        Self { issued, due_wall, due_boot, was_due: false }
    }

    /// `self` once more, since the plugin had nothing newer: to be tried again `due_in` after `now`.
    pub(crate) fn again(&self, due_in: Duration, now: Now) -> Self {
        let was_due = self.was_due || self.is_due_at(now);
        Self { was_due, ..Self::new(Arc::clone(&self.issued), due_in, now) }
    }

    /// Whether its refresh point has not come yet: nobody has a reason to ask for another one but a rejection.
    pub(crate) fn is_fresh_at(&self, now: Now) -> bool {
        !self.was_due && !self.is_due_at(now)
    }

    /// The same, to be renewed at `now`.
    pub(crate) fn due_now(self, now: Now) -> Self {
        Self { due_wall: now.wall, due_boot: now.boot, ..self }
    }

    /// When it is to be renewed, by the wall clock.
    pub(crate) fn due_wall(&self) -> SystemTime {
        self.due_wall
    }

    pub(crate) fn is_due_at(&self, now: Now) -> bool {
        now.wall >= self.due_wall || now.boot >= self.due_boot
    }
}

/// Why the last run gave nothing, held so that it is not repeated at once.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: CacheError,
    /// Failures in a row.
    pub(crate) attempts: u32,
    /// Time since boot until which it is held. Not wall time: a step must not lengthen it.
    pub(crate) retry_at: Duration,
}

impl Failure {
    /// What an ask at `now` is told.
    pub(crate) fn at(&self, now: Now) -> Failed {
        Failed { error: self.error.clone(), retry_after: self.retry_at.saturating_sub(now.boot) }
    }
}
