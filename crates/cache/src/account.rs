//! The account of one run: one line in the log, and the counts.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tracing::{debug, info, warn};

use super::{
    entry::KeyEntry,
    error::{CacheError, Failure},
    run::Run,
    state::Current,
};
use credbroker_credential::{Issued, rfc3339, text::chain};
use credbroker_observe::{
    clock::Now,
    metrics::{CallStatus, Metrics, RunOutcome},
};
use credbroker_runner::{RunError, RunOutput};

/// Failures in a row that are warnings. Later ones, until the next success, are information.
const WARNED: u32 = 3;

/// What a run led to: a credential that passed every check, and what it is beside the one that was held, or a failure.
/// `None`: no caller needed it.
pub(super) type RunEffect = Option<Result<(RunOutcome, Current), Failure>>;

/// A run that has ended, and the credential that it found held.
#[derive(Debug)]
pub(super) struct Account<'a> {
    pub(super) entry: &'a KeyEntry,
    pub(super) run: &'a Run,
    pub(super) metrics: &'a Metrics,
    pub(super) held: Option<&'a Current>,
    pub(super) now: Now,
}

impl Account<'_> {
    /// Counts and logs the run, and returns its outcome.
    pub(super) fn close(&self, effect: &RunEffect) -> RunOutcome {
        let (outcome, reason, queued) = (self.outcome(effect), self.run.reason, self.run.queued());
        if queued.is_some() || outcome.is_success().is_some() {
            self.entry.counts(self.metrics).ran(reason, outcome, queued, self.run.ran());
        }
        match effect {
            Some(Ok((_, current))) => self.accepted(current, outcome),
            Some(Err(failure)) if outcome.is_success().is_some() => self.failed(failure, outcome),
            _ if queued.is_some() => {
                info!(reason = %reason.name(), outcome = %outcome.name(), "plugin run ended without an outcome");
            }
            _ => debug!(reason = %reason.name(), outcome = %outcome.name(), "plugin run not started"),
        }
        outcome
    }

    fn outcome(&self, effect: &RunEffect) -> RunOutcome {
        match effect {
            None => RunOutcome::Cancelled,
            Some(Ok((outcome, _))) => *outcome,
            Some(Err(failure)) => match (&failure.error, self.run.throttled_by.get()) {
                (_, Some(error)) | (CacheError::Run(error), None) => outcome(error),
                (CacheError::Lifetime { .. }, None) => RunOutcome::ExpiredOutput,
                (_, None) => RunOutcome::Cancelled,
            },
        }
    }

    fn accepted(&self, current: &Current, outcome: RunOutcome) {
        let issued = &current.issued;
        let (generation, expires) = (&issued.generation, rfc3339(issued.expires_at));
        let (ran, queued) = (self.run.ran(), self.run.queued());
        info!(
            reason = %self.run.reason.name(),
            outcome = %outcome.name(),
            duration_ms = ran.map(millis),
            queued_ms = queued.map(millis),
            %generation,
            %expires,
            "plugin run finished"
        );
        let micros = ran.map_or(0, |ran| u64::try_from(ran.as_micros()).unwrap_or(u64::MAX));
        self.entry.run_micros.store(micros, Ordering::Relaxed);
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
        let cause = self.run.throttled_by.get().map_or_else(|| chain(&failure.error), |error| chain(error));
        let retry = failure.refresh_at.saturating_sub(self.now.boot);
        let served = self.held.is_some_and(|held| held.issued.is_valid_at(self.now));
        // One missing plugin fails the runs of all keys of its provider.
        let suppressed = if outcome == RunOutcome::NotFound {
            self.metrics.missing.admit(Arc::clone(&self.entry.spec.provider.name), self.now.boot)
        } else {
            (failure.attempts <= WARNED).then_some(0)
        };
        let (ran, queued) = (self.run.ran(), self.run.queued());
        macro_rules! line {
            ($level:ident, $($more:tt)*) => {
                $level!(
                    reason = %self.run.reason.name(),
                    outcome = %outcome.name(),
                    duration_ms = ran.map(millis),
                    queued_ms = queued.map(millis),
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
}

/// The age of the certificate of `old`, if `new` has another one.
fn replaced_certificate(old: &Issued, new: &Issued, now: SystemTime) -> Option<Duration> {
    let certificate = old.certificate.filter(|_| old.fingerprint != new.fingerprint)?;
    now.duration_since(certificate.from).ok()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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

#[cfg(test)]
mod tests;
