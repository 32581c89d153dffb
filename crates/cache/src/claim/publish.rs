//! The end of a claim: its outcome is published, counted and logged.

use std::sync::Arc;

use tracing::info;

use super::Claim;
use crate::{
    CacheError,
    account::{Account, RunEffect},
    attention::{EndResult, Ending},
    state::Current,
};
use credbroker_runner::{PluginRunner, RunError, RunOutput};

impl<R: PluginRunner> Claim<R> {
    /// Publishes the outcome. Everything that may panic comes before that: a run without an outcome leaves its callers
    /// waiting.
    pub(super) fn publish(&mut self, result: Result<RunOutput, CacheError>) {
        let (held, last) = {
            let state = self.entry.cell.borrow();
            (state.current.clone(), state.failure.clone())
        };
        let failure = match &result {
            Err(CacheError::Run(RunError::Timeout { stderr, .. })) if !stderr.is_empty() => EndResult::Prompt,
            Err(error) if error.needs_terminal() => EndResult::NoTerminal,
            _ => EndResult::Failure,
        };
        let has_run = self.flight.started_at().is_some()
            && !matches!(result, Err(CacheError::Draining | CacheError::Run(RunError::Throttled { .. })));
        let outcome = result.and_then(|output| self.cache.accept(&self.entry, held.as_ref(), &output));
        let outcome = outcome.map_err(|error| self.cache.reject(last.as_ref(), error, held.as_ref()));
        self.account(held.as_ref(), &outcome.as_ref().map_or_else(RunEffect::Failed, RunEffect::Accepted));
        if let (Some(failure), Ok(_)) = (&last, &outcome) {
            info!(failures = failure.attempts, "the plugin works again");
        }
        drop(held);
        let outcome = outcome.map(|accepted| accepted.current);
        let attendance = &self.flight.attendance;
        let ending = has_run.then(|| Ending {
            result: if outcome.is_ok() { EndResult::Credential } else { failure },
            is_attended: attendance.is_attended(),
            needed_person: attendance.needed_person(),
        });
        self.is_over = true;
        let issued = outcome.as_ref().map(|current| Arc::clone(&current.issued));
        let issued = issued.map_err(Clone::clone);
        if issued.is_ok() {
            // A verification in progress holds the old credential.
            self.entry.forget_verification();
        }
        let (flight, mut is_refused) = (&self.flight, false);
        let is_leased = attendance.lender().is_some();
        let standing = &self.entry.spec.provider.standing;
        self.entry.cell.send_if_modified(|state| {
            // Asked in the cell: a reload that shares the provider looks at the cell afterwards.
            let is_forgeable = is_leased && standing.is_shared();
            // An entry that is no longer in the map does not note that it is retired.
            is_refused = state.retired.is_some() || standing.retirement().is_some() || is_forgeable;
            // After an eviction the entry has another run or none, and does not keep this outcome.
            if state.flight.take_if(|found| Arc::ptr_eq(found, flight)).is_none() {
                return false;
            }
            self.cache.changed();
            if is_forgeable {
                return false;
            }
            state.attention = ending.map_or(state.attention, |ending| state.attention.after(ending));
            match outcome {
                Ok(current) => {
                    state.accept(current);
                    state.is_leased = is_leased;
                }
                Err(failure) => state.failure = Some(failure),
            }
            true
        });
        // Not even the callers that wait get the credential of a definition that is no longer in force, or one that another
        // user could have forged.
        flight.publish(Some(issued).filter(|_| !is_refused));
    }

    /// Counts and logs the run, which found `held` in the entry.
    pub(super) fn account(&self, held: Option<&Current>, end: &RunEffect<'_>) {
        let now = self.cache.now();
        let account = Account {
            entry: &self.entry,
            metrics: &self.cache.inner.parts.metrics,
            reason: self.flight.reason,
            queued: self.flight.started_at().map(|started| started.saturating_sub(self.entered)),
            ended: self.ended.get(),
            held,
            now,
        };
        let outcome = account.close(end);
        self.flight.end_trace(outcome, account.queued);
        if let Some(started) = self.flight.started_at() {
            let took = self.ended.get().map_or(now.boot.saturating_sub(started), |ended| ended.ran);
            let end = match end {
                RunEffect::Accepted(accepted) => Ok(&*accepted.current.issued),
                RunEffect::Failed(failure) => Err(Some(&failure.error)),
                RunEffect::Abandoned => Err(None),
            };
            (self.cache.inner.parts.on_run)(&self.entry.spec, end, took);
        }
    }
}

impl<R: PluginRunner> Drop for Claim<R> {
    fn drop(&mut self) {
        if !self.is_over {
            let is_draining = self.cache.inner.parts.draining.is_cancelled();
            let panicked = || RunError::Panicked { command: self.entry.spec.command() };
            self.publish(Err(if is_draining { CacheError::Draining } else { panicked().into() }));
        }
    }
}
