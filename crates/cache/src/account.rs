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
use credbroker_runner::{PluginRunner, RunError, RunErrorKind, RunOutput};

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
                (_, Some(error)) | (CacheError::Run(error), None) => self::failure(error).0,
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

/// The outcome of a run that failed, and how client-go counts the call of its plugin: by the end of the process, not by what
/// it printed.
fn failure(error: &RunError) -> (RunOutcome, i32, CallStatus) {
    use CallStatus::{ClientInternalError, NoError, PluginExecutionError, PluginNotFoundError};
    match &error.kind {
        RunErrorKind::Exit(code) => (RunOutcome::Exit, *code, PluginExecutionError),
        // The broker or another process ended these by a signal.
        RunErrorKind::Signal(_) => (RunOutcome::Signal, -1, PluginExecutionError),
        RunErrorKind::Timeout(..) => (RunOutcome::Timeout, -1, PluginExecutionError),
        RunErrorKind::OutputTooLarge(_) => (RunOutcome::OutputTooLarge, -1, PluginExecutionError),
        RunErrorKind::Recursion => (RunOutcome::Recursion, -1, PluginExecutionError),
        RunErrorKind::NeedsTerminal | RunErrorKind::TerminalLost(_) => {
            (RunOutcome::InteractionRequired, -1, PluginExecutionError)
        }
        RunErrorKind::Decode(_) => (RunOutcome::InvalidOutput, 0, NoError),
        RunErrorKind::NotFound(_) | RunErrorKind::Unreadable(_) => {
            (RunOutcome::NotFound, 1, PluginNotFoundError)
        }
        RunErrorKind::Spawn(_) => (RunOutcome::NotStarted, 1, PluginNotFoundError),
        RunErrorKind::NotAllowed(refusal) if refusal.is_of_policy() => {
            (RunOutcome::PolicyDenied, 1, ClientInternalError)
        }
        RunErrorKind::ArgumentsTooLong(_)
        | RunErrorKind::Directory(..)
        | RunErrorKind::ExecInfo(_)
        | RunErrorKind::NotAllowed(_)
        | RunErrorKind::Unanswered => (RunOutcome::NotStarted, 1, ClientInternalError),
        RunErrorKind::Throttled { .. } => (RunOutcome::Throttled, 1, ClientInternalError),
        RunErrorKind::Panicked => (RunOutcome::Panicked, 1, ClientInternalError),
    }
}

/// Counts a call of a plugin. A plugin that the policy denies is not called.
fn called(metrics: &Metrics, result: &Result<RunOutput, RunError>) {
    let (code, status) = match result.as_ref().map_err(failure) {
        _ if matches!(result, Err(RunError { kind: RunErrorKind::ExecInfo(_), .. })) => return, // before the policy
        Err((RunOutcome::PolicyDenied, ..)) => return metrics.calls.checked(false),
        Err((_, code, status)) => (code, status),
        Ok(_) => (0, CallStatus::NoError),
    };
    metrics.calls.checked(true);
    metrics.calls.called(code, status);
}

#[cfg(test)]
mod tests;
