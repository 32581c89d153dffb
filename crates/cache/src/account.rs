//! The account of one run: one line in the log, and the counts.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tracing::{debug, info, warn};

use super::{
    claim::{Claim, RunEffect},
    error::{CacheError, Failure},
    state::Current,
};
use credbroker_credential::{rfc3339, text::chain};
use credbroker_observe::{
    clock::Now,
    metrics::{CallStatus, Metrics, RunOutcome},
};
use credbroker_runner::{PluginRunner, RunError, RunOutput};

/// Failures in a row that are warnings. Later ones, until the next success, are information.
const WARNED: u32 = 3;

impl<R: PluginRunner> Claim<R> {
    /// Notes and counts that the plugin ended with `result`.
    pub(super) fn plugin_ended(&self, result: &Result<RunOutput, RunError>) {
        self.run.ends(self.cache.now());
        called(&self.cache.inner.parts.metrics, result);
    }

    /// Counts and logs the run, which found `held` in the entry and led to `effect`.
    pub(super) fn account(&self, held: Option<&Current>, effect: &RunEffect) {
        let Self { cache, entry, run } = self;
        let (parts, now) = (&cache.inner.parts, cache.now());
        let (reason, outcome, queued) = (run.reason, self.outcome(effect), run.queued());
        if queued.is_some() || outcome.is_success().is_some() {
            entry.counts(&parts.metrics).ran(reason, outcome, queued, run.ran());
        }
        match effect {
            Some(Ok((_, current))) => self.accepted(current, outcome, held, now),
            Some(Err(failure)) if outcome.is_success().is_some() => self.failed(failure, outcome, held, now),
            _ if queued.is_some() => {
                info!(reason = %reason.name(), outcome = %outcome.name(), "plugin run ended without an outcome");
            }
            _ => debug!(reason = %reason.name(), outcome = %outcome.name(), "plugin run not started"),
        }
        run.span.end(outcome, queued);
        if let Some(started) = run.started_at() {
            let issued = match effect {
                Some(Ok((_, current))) => Ok(&*current.issued),
                Some(Err(failure)) => Err(Some(&failure.error)),
                None => Err(None),
            };
            let took = run.ran().unwrap_or_else(|| now.boot.saturating_sub(started));
            (parts.on_run)(&entry.spec, issued, took);
        }
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

    fn accepted(&self, current: &Current, outcome: RunOutcome, held: Option<&Current>, now: Now) {
        let Self { entry, run, .. } = self;
        let issued = &current.issued;
        let (generation, expires) = (&issued.generation, rfc3339(issued.expires_at));
        info!(
            reason = %run.reason.name(),
            outcome = %outcome.name(),
            duration_ms = run.ran().map(millis),
            queued_ms = run.queued().map(millis),
            %generation,
            %expires,
            "plugin run finished"
        );
        let micros = run.ran().map_or(0, |ran| u64::try_from(ran.as_micros()).unwrap_or(u64::MAX));
        entry.run_micros.store(micros, Ordering::Relaxed);
        let old = held.map(|held| &held.issued).filter(|old| old.generation != *generation);
        if let Some(old) = old {
            let watchers = entry.watchers.load(Ordering::Relaxed);
            info!(%generation, previous = %old.generation, %expires, watchers, "credential rotated");
            let certificate = old.certificate.filter(|_| old.fingerprint != issued.fingerprint);
            if let Some(Ok(age)) = certificate.map(|replaced| now.wall.duration_since(replaced.from)) {
                self.cache.inner.parts.metrics.calls.replaced(age);
            }
        }
    }

    fn failed(&self, failure: &Failure, outcome: RunOutcome, held: Option<&Current>, now: Now) {
        let Self { cache, entry, run } = self;
        let cause = run.throttled_by.get().map_or_else(|| chain(&failure.error), |error| chain(error));
        let retry = failure.refresh_at.saturating_sub(now.boot);
        let served = held.is_some_and(|held| held.issued.is_valid_at(now));
        // One missing plugin fails the runs of all keys of its provider.
        let suppressed = if outcome == RunOutcome::NotFound {
            cache.inner.parts.metrics.missing.admit(Arc::clone(&entry.spec.provider.name), now.boot)
        } else {
            (failure.attempts <= WARNED).then_some(0)
        };
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    reason = %run.reason.name(),
                    outcome = %outcome.name(),
                    duration_ms = run.ran().map(millis),
                    queued_ms = run.queued().map(millis),
                    attempts = failure.attempts,
                    retry_ms = millis(retry),
                    still_served = served,
                    others = suppressed.filter(|others| *others > 0),
                    "plugin run failed: {cause}"
                )
            };
        }
        if suppressed.is_some() { line!(warn) } else { line!(info) }
    }
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
fn called(metrics: &Metrics, result: &Result<RunOutput, RunError>) {
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
