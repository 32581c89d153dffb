//! The right to one run.

use std::sync::Arc;

use super::{Shared, pace::Outcome, words::throttling};
use crate::exec::RunError;

/// The right to one run. Dropping it gives the slot back and says nothing about the issuer.
#[derive(Debug)]
#[must_use = "dropping a permit gives its slot back"]
pub struct Permit {
    shared: Arc<Shared>,
    id: u64,
    outcome: Outcome,
}

impl Permit {
    pub(super) fn new(shared: &Arc<Shared>, id: u64) -> Self {
        Self { shared: Arc::clone(shared), id, outcome: Outcome::Unknown }
    }

    /// Gives the slot back, and learns from the run's end whether its issuer asks for fewer runs.
    pub fn finish<T>(mut self, result: &Result<T, RunError>) {
        self.outcome = outcome(result);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.finish(self.id, self.outcome);
    }
}

/// What the end of a run says about its issuer.
fn outcome<T>(result: &Result<T, RunError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(
            RunError::Exit { stderr, .. }
            | RunError::Signal { stderr, .. }
            | RunError::Timeout { stderr, .. },
        ) => throttling(stderr).map_or(Outcome::Reached, Outcome::Throttled),
        Err(RunError::Decode { .. } | RunError::OutputTooLarge { .. }) => Outcome::Reached,
        // It did not come so far as to ask anybody.
        Err(
            RunError::ArgumentsTooLong { .. }
            | RunError::Directory { .. }
            | RunError::ExecInfo { .. }
            | RunError::NeedsTerminal { .. }
            | RunError::NotFound { .. }
            | RunError::Panicked { .. }
            | RunError::Recursion { .. }
            | RunError::Spawn { .. }
            | RunError::Throttled { .. }
            | RunError::Unanswered { .. }
            | RunError::Unreadable { .. },
        ) => Outcome::Unknown,
    }
}
