//! What the result of a run counts as.

use credbroker_credential::text::chain;
use credbroker_observe::metrics::{CallStatus, Metrics, RunOutcome};
use credbroker_runner::{RunError, RunOutput};

/// The outcome and the cause of a failed run.
pub(crate) fn failure(error: &RunError) -> (RunOutcome, String) {
    (outcome(error), chain(error))
}

pub(super) fn outcome(error: &RunError) -> RunOutcome {
    match error {
        RunError::Exit { .. } => RunOutcome::Exit,
        RunError::Signal { .. } => RunOutcome::Signal,
        RunError::Timeout { .. } => RunOutcome::Timeout,
        RunError::OutputTooLarge { .. } => RunOutcome::OutputTooLarge,
        RunError::Decode { .. } => RunOutcome::InvalidOutput,
        RunError::NotFound { .. } | RunError::Unreadable { .. } => RunOutcome::NotFound,
        RunError::NotAllowed { refusal, .. } if refusal.is_of_policy() => RunOutcome::PolicyDenied,
        RunError::ArgumentsTooLong { .. }
        | RunError::Directory { .. }
        | RunError::ExecInfo { .. }
        | RunError::NotAllowed { .. }
        | RunError::Spawn { .. }
        | RunError::Unanswered { .. } => RunOutcome::NotStarted,
        RunError::NeedsTerminal { .. } | RunError::TerminalLost { .. } => RunOutcome::InteractionRequired,
        RunError::Recursion { .. } => RunOutcome::Recursion,
        RunError::Throttled { .. } => RunOutcome::Throttled,
        RunError::Panicked { .. } => RunOutcome::Panicked,
    }
}

/// Counts a call of a plugin as client-go does: by the end of the process, not by what it printed. A plugin that the policy
/// denies is not called.
pub(crate) fn called(metrics: &Metrics, result: &Result<RunOutput, RunError>) {
    match result {
        Err(RunError::ExecInfo { .. }) => return, // before the policy
        Err(RunError::NotAllowed { refusal, .. }) if refusal.is_of_policy() => {
            return metrics.calls.checked(false);
        }
        _ => metrics.calls.checked(true),
    }
    let (code, status) = match result {
        Ok(_) | Err(RunError::Decode { .. }) => (0, CallStatus::NoError),
        Err(RunError::Exit { code, .. }) => (*code, CallStatus::PluginExecutionError),
        // The broker or another process ended it by a signal.
        Err(
            RunError::NeedsTerminal { .. }
            | RunError::OutputTooLarge { .. }
            | RunError::Recursion { .. }
            | RunError::Signal { .. }
            | RunError::TerminalLost { .. }
            | RunError::Timeout { .. },
        ) => (-1, CallStatus::PluginExecutionError),
        Err(RunError::NotFound { .. } | RunError::Spawn { .. } | RunError::Unreadable { .. }) => {
            (1, CallStatus::PluginNotFoundError)
        }
        Err(_) => (1, CallStatus::ClientInternalError),
    };
    metrics.calls.called(code, status);
}
