//! The account of one run: one line in the log, and the counts.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tracing::{debug, info, warn};

use super::{
    CacheError,
    entry::KeyEntry,
    outcome::Accepted,
    state::{Current, Failure},
};
use crate::{
    clock::Now,
    credential::{Issued, rfc3339},
    exec::{RunError, RunOutput},
    metrics::{CallStatus, Metrics, RunOutcome, RunReason},
    text::chain,
};

/// Failures in a row that are warnings. Later ones, until the next success, are information.
const WARNED: u32 = 3;

/// How the process of a plugin ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// How long it ran.
    pub(super) ran: Duration,
    /// Why it brought no output that can be used; `None`: it did.
    pub(super) failure: Option<(RunOutcome, String)>,
}

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Account<'a> {
    pub(super) entry: &'a KeyEntry,
    pub(super) metrics: &'a Metrics,
    pub(super) reason: RunReason,
    /// How long it was queued; `None`: it never started.
    pub(super) queued: Option<Duration>,
    /// `None`: its process did not end, or there was none.
    pub(super) ended: Option<&'a Ended>,
    /// The credential that was held.
    pub(super) held: Option<&'a Current>,
    pub(super) now: Now,
}

/// What a run led to.
#[derive(Debug)]
pub(super) enum RunEnd<'a> {
    Accepted(&'a Accepted),
    Failed(&'a Failure),
    /// No caller needed it.
    Abandoned,
}

impl Account<'_> {
    /// Counts and logs the run, and returns its outcome.
    pub(super) fn close(&self, end: &RunEnd<'_>) -> RunOutcome {
        let outcome = self.outcome(end);
        let ran = self.ended.map(|ended| ended.ran);
        if self.queued.is_some() || outcome.is_success().is_some() {
            self.entry.counts(self.metrics).ran(self.reason, outcome, self.queued, ran);
        }
        match end {
            RunEnd::Accepted(accepted) => self.accepted(accepted),
            RunEnd::Failed(failure) if outcome.is_success().is_some() => self.failed(failure, outcome),
            RunEnd::Failed(_) | RunEnd::Abandoned if self.queued.is_some() => {
                info!(reason = %self.reason.name(), outcome = %outcome.name(), "plugin run ended without an outcome");
            }
            RunEnd::Failed(_) | RunEnd::Abandoned => {
                debug!(reason = %self.reason.name(), outcome = %outcome.name(), "plugin run not started");
            }
        }
        outcome
    }

    fn outcome(&self, end: &RunEnd<'_>) -> RunOutcome {
        match (end, self.ended) {
            (RunEnd::Accepted(accepted), _) => accepted.outcome,
            // The error that callers get may name another cause, such as an issuer that is paused now.
            (RunEnd::Failed(_), Some(Ended { failure: Some((outcome, _)), .. })) => *outcome,
            (RunEnd::Failed(failure), _) => match &failure.error {
                CacheError::Lifetime { .. } => RunOutcome::ExpiredOutput,
                CacheError::Run(error) => outcome(error),
                _ => RunOutcome::Cancelled,
            },
            (RunEnd::Abandoned, _) => RunOutcome::Cancelled,
        }
    }

    fn accepted(&self, Accepted { current, outcome }: &Accepted) {
        let issued = &current.issued;
        let (generation, expires) = (&issued.generation, rfc3339(issued.expires_at));
        let (ran, queued) = self.millis();
        info!(
            reason = %self.reason.name(),
            outcome = %outcome.name(),
            duration_ms = ran,
            queued_ms = queued,
            %generation,
            %expires,
            "plugin run finished"
        );
        self.entry.run_micros.store(self.ended.map_or(0, |ended| micros(ended.ran)), Ordering::Relaxed);
        let old = self.held.map(|held| &held.issued).filter(|old| old.generation != *generation);
        if let Some(old) = old {
            let watchers = self.entry.watchers.load(Ordering::Relaxed);
            info!(%generation, previous = %old.generation, %expires, watchers, "credential rotated");
            if let Some(age) = replaced_certificate(old, issued, self.now.wall) {
                self.metrics.calls.replaced(age);
            }
        }
    }

    fn failed(&self, failure: &Failure, outcome: RunOutcome) {
        let cause = match self.ended {
            Some(Ended { failure: Some((_, cause)), .. }) => cause.clone(),
            _ => chain(&failure.error),
        };
        let retry = failure.refresh_at.saturating_sub(self.now.boot);
        let served = self.held.is_some_and(|held| held.issued.is_valid_at(self.now));
        // One missing plugin fails the runs of all keys of its provider.
        let suppressed = if outcome == RunOutcome::NotFound {
            self.metrics.missing.admit(Arc::clone(&self.entry.spec.provider.name), self.now.boot)
        } else {
            (failure.attempts <= WARNED).then_some(0)
        };
        let (ran, queued) = self.millis();
        macro_rules! line {
            ($level:ident, $($more:tt)*) => {
                $level!(
                    reason = %self.reason.name(),
                    outcome = %outcome.name(),
                    duration_ms = ran,
                    queued_ms = queued,
                    attempts = failure.attempts,
                    retry_ms = millis(retry),
                    still_served = served,
                    $($more)*
                    "plugin run failed: {cause}"
                )
            };
        }
        match suppressed {
            None => line!(info,),
            Some(0) => line!(warn,),
            Some(others) => line!(warn, others,),
        }
    }

    /// How long it ran and was queued.
    fn millis(&self) -> (Option<u64>, Option<u64>) {
        (self.ended.map(|ended| millis(ended.ran)), self.queued.map(millis))
    }
}

/// The outcome and the cause of a failed run.
pub(super) fn failure(error: &RunError) -> (RunOutcome, String) {
    (outcome(error), chain(error))
}

fn outcome(error: &RunError) -> RunOutcome {
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
pub(super) fn called(metrics: &Metrics, result: &Result<RunOutput, RunError>) {
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

/// The age of the certificate of `old`, if `new` has another one.
fn replaced_certificate(old: &Issued, new: &Issued, now: SystemTime) -> Option<Duration> {
    let certificate = old.certificate.filter(|_| old.fingerprint != new.fingerprint)?;
    now.duration_since(certificate.from).ok()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::{
        credential::{DecodeError, ExecInfoError},
        metrics::Exposition,
        plugin::Refusal,
    };

    fn written(metrics: &Metrics) -> String {
        let mut text = Exposition::default();
        metrics.calls.write(&mut text, f64::INFINITY);
        text.into_text()
    }

    #[test]
    fn a_call_is_counted_as_client_go_counts_it_and_a_run_by_its_outcome() {
        let (command, stderr) = (|| Arc::<str>::from("p"), || Arc::<str>::from(""));
        let io = || Arc::new(io::Error::from(io::ErrorKind::PermissionDenied));
        let seconds = Duration::from_secs;
        let table = [
            (
                RunError::Exit { command: command(), code: 7, stderr: stderr() },
                "7",
                "plugin_execution_error",
                "exit",
            ),
            (
                RunError::Signal { command: command(), signal: 9, stderr: stderr() },
                "-1",
                "plugin_execution_error",
                "signal",
            ),
            (
                RunError::Timeout { command: command(), limit: seconds(1), key: "timeout", stderr: stderr() },
                "-1",
                "plugin_execution_error",
                "timeout",
            ),
            (
                RunError::OutputTooLarge { command: command(), limit: 1 },
                "-1",
                "plugin_execution_error",
                "output_too_large",
            ),
            (
                RunError::NeedsTerminal { command: command(), stderr: stderr() },
                "-1",
                "plugin_execution_error",
                "interaction_required",
            ),
            (RunError::Recursion { command: command() }, "-1", "plugin_execution_error", "recursion"),
            (
                RunError::Decode { command: command(), source: DecodeError::Empty },
                "0",
                "no_error",
                "invalid_output",
            ),
            (
                RunError::NotFound { command: command(), place: "", install_hint: None },
                "1",
                "plugin_not_found_error",
                "not_found",
            ),
            (
                RunError::Spawn { command: command(), cause: io() },
                "1",
                "plugin_not_found_error",
                "not_started",
            ),
            (
                RunError::ArgumentsTooLong { command: command(), size: 1 },
                "1",
                "client_internal_error",
                "not_started",
            ),
            (
                RunError::NotAllowed {
                    command: command(),
                    refusal: Refusal::Digest { actual: String::new() },
                },
                "1",
                "client_internal_error",
                "not_started",
            ),
            (RunError::Panicked { command: command() }, "1", "client_internal_error", "panicked"),
        ];
        for (error, code, status, expected) in table {
            assert_eq!(outcome(&error).name(), expected, "{error}");
            let metrics = Metrics::default();
            called(&metrics, &Err(error));
            let line =
                format!("rest_client_exec_plugin_call_total{{code=\"{code}\",call_status=\"{status}\"}} 1\n");
            let text = written(&metrics);
            assert!(text.contains(&line), "{line}{text}");
            assert!(text.contains("policy_call_total{status=\"allowed\"} 1\n"), "{text}");
            assert!(text.contains("rest_client_exec_plugin_ttl_seconds +Inf\n"), "{text}");
        }
    }

    #[test]
    fn a_plugin_that_the_policy_denies_is_not_called() {
        let command = || Arc::<str>::from("p");
        let metrics = Metrics::default();
        for refusal in [Refusal::DenyAll, Refusal::NotListed { command: "p".into() }] {
            let error = RunError::NotAllowed { command: command(), refusal };
            assert_eq!(outcome(&error).name(), "policy_denied");
            called(&metrics, &Err(error));
        }
        let unasked =
            RunError::ExecInfo { command: command(), source: ExecInfoError::Config { line: 1, column: 1 } };
        called(&metrics, &Err(unasked));
        let text = written(&metrics);
        assert!(text.contains("policy_call_total{status=\"denied\"} 2\n"), "{text}");
        assert!(text.contains("policy_call_total{status=\"allowed\"} 0\n"), "{text}");
        assert!(!text.contains("rest_client_exec_plugin_call_total{"), "{text}");
    }
}
