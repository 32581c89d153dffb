//! How long a run may take.

use std::{sync::Arc, time::Duration};

use crate::RunError;

/// How long a run may take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunBudget {
    /// `timeout`.
    pub unattended: Duration,
    /// `interactiveTimeout`.
    pub attended: Duration,
}

impl RunBudget {
    /// The time from its start that a run has: `interactiveTimeout` while a person attends it and it has a place among
    /// the interactive runs, and `timeout` otherwise. Attending never shortens a run.
    pub fn limit(self, is_attended: bool, has_place: bool) -> Duration {
        if is_attended && has_place { self.attended.max(self.unattended) } else { self.unattended }
    }

    /// The error of the plugin `command`, which has used up `limit`.
    pub(crate) fn used_up(self, command: Arc<str>, limit: Duration, stderr: Arc<str>) -> RunError {
        let key = if limit > self.unattended { "interactiveTimeout" } else { "timeout" };
        RunError::Timeout { command, limit, key, stderr }
    }
}

/// Whether a run waits for a person, as far as the broker can know: a person attends it, and it has written something, or
/// takes longer than runs usually do.
pub(super) fn waits_for_person(
    is_attended: bool,
    has_written: bool,
    elapsed: Duration,
    budget: RunBudget,
) -> bool {
    is_attended && (has_written || elapsed >= budget.unattended / 2)
}
