//! The right to one run.

use std::{sync::Arc, time::Duration};

use super::{
    ForeignTexts, SharedScheduler,
    pace::{self, Outcome},
    words::throttling,
};
use crate::RunError;

/// The right to one run. Dropping it returns the slot and says nothing about the issuer.
#[derive(Debug)]
#[must_use = "dropping a permit returns its slot"]
pub struct RunPermit {
    shared: Arc<SharedScheduler>,
    id: u64,
    outcome: Outcome,
}

impl RunPermit {
    pub(super) fn new(shared: &Arc<SharedScheduler>, id: u64) -> Self {
        Self { shared: Arc::clone(shared), id, outcome: Outcome::Unknown }
    }

    /// Counts the run among those that wait for a person, and returns whether there was room for it. Its slot is free from
    /// then on.
    pub fn step_aside(&self) -> bool {
        self.shared.with(|state, now| state.queue.step_aside(self.id, now))
    }

    /// Returns the slot, and learns from `result` whether the plugin was throttled: for how long its key is paused then.
    /// `is_first`: no run of the key was throttled since its last credential. `foreign` is called only if it matters.
    pub fn finish<T>(
        mut self,
        result: &Result<T, RunError>,
        is_first: bool,
        foreign: impl FnOnce() -> ForeignTexts,
    ) -> Option<Duration> {
        self.outcome = outcome(result, foreign);
        match self.outcome {
            Outcome::Throttled(throttling) => Some(pace::pause(throttling, is_first, (self.shared.jitter)())),
            Outcome::Success | Outcome::Reached | Outcome::Unknown => None,
        }
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.shared.finish(self.id, self.outcome);
    }
}

/// What the end of a run says about its issuer.
fn outcome<T>(result: &Result<T, RunError>, foreign: impl FnOnce() -> ForeignTexts) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(
            RunError::Exit { stderr, .. }
            | RunError::Signal { stderr, .. }
            | RunError::Timeout { stderr, .. },
        ) => throttling(stderr, foreign).map_or(Outcome::Reached, Outcome::Throttled),
        Err(RunError::Decode { .. } | RunError::OutputTooLarge { .. }) => Outcome::Reached,
        // The plugin did not ask the issuer.
        Err(
            RunError::ArgumentsTooLong { .. }
            | RunError::Directory { .. }
            | RunError::ExecInfo { .. }
            | RunError::NeedsTerminal { .. }
            | RunError::NotAllowed { .. }
            | RunError::NotFound { .. }
            | RunError::Panicked { .. }
            | RunError::Recursion { .. }
            | RunError::Spawn { .. }
            | RunError::TerminalLost { .. }
            | RunError::Throttled { .. }
            | RunError::Unanswered { .. }
            | RunError::Unreadable { .. },
        ) => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests;
