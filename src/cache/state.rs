//! What a cell holds.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{CacheError, Failed};
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
}

/// A credential and when to renew it: whichever clock gets there first.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) issued: Arc<Issued>,
    due_wall: SystemTime,
    due_boot: Duration,
}

impl Current {
    /// To be renewed `due_in` after `now`.
    pub(crate) fn new(issued: Arc<Issued>, due_in: Duration, now: Now) -> Self {
        Self { issued, due_wall: now.wall + due_in, due_boot: now.boot.saturating_add(due_in) }
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
