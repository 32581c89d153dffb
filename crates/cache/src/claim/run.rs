//! The run of a claim.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::sleep;
use tracing::warn;

use super::Claim;
use crate::{
    CacheError,
    account::{self, Ended, RunEffect},
    makers::Made,
};
use credbroker_runner::{ForeignTexts, PluginRunner, RunError, RunOutput, RunPermit, RunSource, Throttled};

impl<R: PluginRunner> Claim<R> {
    pub(super) async fn run(mut self) {
        let parts = &self.cache.inner.parts;
        let result = tokio::select! {
            biased;
            () = parts.draining.cancelled() => Err(CacheError::Draining),
            () = self.flight.abandoned.cancelled() => return self.abandon(),
            result = self.wait_and_run() => result,
        };
        // Another caller may have a terminal too.
        if let Err(CacheError::Run(RunError::TerminalLost { .. })) = result {
            return self.abandon();
        }
        self.publish(result);
    }

    /// Waits until the scheduler permits the run, and runs the plugin.
    async fn wait_and_run(&self) -> Result<RunOutput, CacheError> {
        let (parts, spec) = (&self.cache.inner.parts, &self.entry.spec);
        let source = self.source();
        let ticket = self.flight.queue(|urgency| parts.scheduler.enter(&spec.provider, urgency, source));
        let permit = ticket.turn().await.map_err(|throttled| throttled.into_error(spec.command()))?;
        // After an eviction, the entry does not end this run when its provider is retired.
        if let Some(why) = spec.provider.standing.retirement() {
            return Err(CacheError::Retired(why));
        }
        let started = self.cache.now();
        self.flight.started(started);
        self.entry.runs.fetch_add(1, Ordering::Relaxed);
        let result = self.run_plugin(&permit).await;
        account::called(&parts.metrics, &result);
        let ran = self.cache.now().boot.saturating_sub(started.boot);
        let _first = self.ended.set(Ended { ran, failure: result.as_ref().err().map(account::failure) });
        let is_first = self.entry.cell.borrow().failure.as_ref().is_none_or(|failure| failure.throttled == 0);
        let foreign = || ForeignTexts::of(spec, self.flight.attendance.session().map(Arc::as_ref));
        let Some(retry_after) = permit.finish(&result, is_first, foreign) else { return Ok(result?) };
        // The issuer asked for fewer runs. Callers need to know that, and for how long.
        let throttled = Throttled { provider: Arc::clone(&spec.provider), of_key: true, retry_after };
        Err(throttled.into_error(spec.command()).into())
    }

    /// Who decides what the plugin receives.
    fn source(&self) -> RunSource {
        let Self { entry, flight, .. } = self;
        if flight.attendance.session().is_none() && entry.spec.foreign_parts().is_empty() {
            return RunSource::Configuration(entry.spec.key);
        }
        RunSource::Others { uid: entry.made.as_ref().map(Made::uid).or(flight.session_uid()) }
    }

    /// Runs the plugin. If it waits for a person, it gives its slot to other runs. One line says that it may run into its
    /// limit.
    async fn run_plugin(&self, permit: &RunPermit) -> Result<RunOutput, RunError> {
        let spec = &self.entry.spec;
        let timeout = spec.provider.timeout;
        let attendance = &self.flight.attendance;
        let half = async {
            sleep(timeout / 2).await;
            if !attendance.is_attended() {
                warn!(
                    timeout_s = timeout.as_secs(),
                    "the plugin has used half of its time limit (`timeout`)"
                );
            }
        };
        let beside = async {
            tokio::join!(half, attendance.take_place(|| permit.step_aside()));
            pending().await
        };
        tokio::select! {
            biased;
            result = self.cache.inner.parts.runner.run(Arc::clone(spec), Arc::clone(attendance)) => result,
            never = beside => never,
        }
    }

    /// Ends without an outcome, because it is not needed.
    fn abandon(mut self) {
        self.is_over = true;
        self.account(None, &RunEffect::Abandoned);
        let flight = &self.flight;
        self.entry.cell.send_if_modified(|state| {
            state.flight.take_if(|found| Arc::ptr_eq(found, flight));
            self.cache.changed();
            false
        });
        flight.publish(None);
    }
}
