//! The right to one run.

use std::sync::Arc;

use super::{SharedScheduler, pace::Outcome, words::throttling};
use crate::exec::RunError;

/// The right to one run. Dropping it returns the slot and says nothing about the issuer.
#[derive(Debug)]
#[must_use = "dropping a permit returns its slot"]
pub struct Permit {
    shared: Arc<SharedScheduler>,
    id: u64,
    outcome: Outcome,
}

impl Permit {
    pub(super) fn new(shared: &Arc<SharedScheduler>, id: u64) -> Self {
        Self { shared: Arc::clone(shared), id, outcome: Outcome::Unknown }
    }

    /// Counts the run among those that wait for a person, and returns whether there was room for it. Its slot is free from
    /// then on.
    pub fn step_aside(&self) -> bool {
        self.shared.with(|state, now| state.queue.step_aside(self.id, now))
    }

    /// Returns the slot, and learns from `result` whether the issuer asks for fewer runs: true if it does.
    pub fn finish<T>(mut self, result: &Result<T, RunError>) -> bool {
        self.outcome = outcome(result);
        matches!(self.outcome, Outcome::Throttled(_))
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
mod tests {
    use std::{io, time::Duration};

    use super::*;
    use crate::{credential::DecodeError, exec::schedule::words::Throttling};

    #[test]
    fn only_the_stderr_of_failed_runs_shows_that_the_issuer_throttles() {
        let command = || Arc::<str>::from("429"); // names mean nothing
        let stderr = || Arc::<str>::from("HTTP 429");
        let after = |retry_after| Outcome::Throttled(Throttling { retry_after });
        let (long, second) = (Duration::from_secs(30), Duration::from_secs(1));
        for (error, expected) in [
            (RunError::Exit { command: command(), code: 1, stderr: stderr() }, after(None)),
            (RunError::Signal { command: command(), signal: 9, stderr: stderr() }, after(None)),
            (
                RunError::Timeout {
                    command: command(),
                    limit: long,
                    key: "timeout",
                    stderr: "Retry-After: 1".into(),
                },
                after(Some(second)),
            ),
            (RunError::Exit { command: command(), code: 429, stderr: "no".into() }, Outcome::Reached),
            (RunError::Decode { command: command(), source: DecodeError::Empty }, Outcome::Reached),
            (RunError::OutputTooLarge { command: command(), limit: 429 }, Outcome::Reached),
            (
                RunError::NotFound { command: command(), install_hint: Some("429".into()), place: "" },
                Outcome::Unknown,
            ),
            (
                RunError::Spawn { command: command(), cause: Arc::new(io::ErrorKind::NotFound.into()) },
                Outcome::Unknown,
            ),
        ] {
            assert_eq!(outcome::<()>(&Err(error.clone())), expected, "{error}");
        }
        assert_eq!(outcome(&Ok(())), Outcome::Success);
    }
}
