//! The claim to the one run of a key. The run belongs to the cache, never to the caller that started it.

use std::sync::{Arc, atomic::Ordering};

use tracing::{Instrument as _, Span, debug, field, info, info_span, warn};

use super::{
    CacheError, CredentialCache, entry::KeyEntry, flight::Flight, policy::Decision, state::KeyState,
};
use crate::{
    exec::{PluginRunner, RunError, RunOutput, Urgency},
    text::chain,
};

/// The claim to run the plugin of an entry. Its run always publishes an outcome, even after a panic or when the runtime
/// shuts down.
struct Claim<R: PluginRunner> {
    entry: Arc<KeyEntry>,
    flight: Arc<Flight>,
    cache: CredentialCache<R>,
    is_over: bool,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Decides, and starts a run if the decision needs one and none is in flight. Returns the run in flight, if any.
    ///
    /// Deciding and claiming are one step: between two steps another run could start and end.
    pub(super) fn try_claim(
        &self,
        entry: &Arc<KeyEntry>,
        urgency: Urgency,
        decide: impl FnOnce(&mut KeyState) -> Decision,
    ) -> (Decision, Option<Arc<Flight>>) {
        let mut decision = Decision::Wait;
        let (mut flight, mut is_new) = (None, false);
        entry.cell.send_if_modified(|state| {
            decision = match state.retired {
                Some(why) => Decision::Fail(CacheError::Retired(why).into()),
                None => decide(state),
            };
            let needs_run = matches!(decision, Decision::Wait | Decision::ServeAndRefresh(_));
            if needs_run && state.flight.is_none() {
                state.flight = Some(Arc::new(Flight::new(urgency)));
                is_new = true;
            }
            flight.clone_from(&state.flight);
            false // watches need not know that a run starts
        });
        if let Some(flight) = flight.as_ref().filter(|_| is_new) {
            self.start(entry, flight);
        }
        (decision, flight)
    }

    /// Starts a run unless one is in flight, also if the entry holds a valid credential. Returns the run in flight.
    pub(super) fn force_claim(&self, entry: &Arc<KeyEntry>, urgency: Urgency) -> Option<Arc<Flight>> {
        self.try_claim(entry, urgency, |_| Decision::Wait).1
    }

    fn start(&self, entry: &Arc<KeyEntry>, flight: &Arc<Flight>) {
        let span = info_span!(
            "plugin_run",
            provider = %entry.spec.provider.name,
            key = %entry.spec.key,
            outcome = field::Empty,
            generation = field::Empty,
        );
        let (entry, flight) = (Arc::clone(entry), Arc::clone(flight));
        let claim = Claim { entry, flight, cache: self.clone(), is_over: false };
        self.inner.parts.tasks.spawn(claim.run().instrument(span.or_current()));
    }
}

impl<R: PluginRunner> Claim<R> {
    async fn run(mut self) {
        let parts = &self.cache.inner.parts;
        let result = tokio::select! {
            biased;
            () = parts.draining.cancelled() => Err(CacheError::Draining),
            () = self.flight.abandoned.cancelled() => return self.abandon(),
            result = self.wait_and_run() => result,
        };
        self.publish(result);
    }

    /// Waits until the scheduler permits the run, and runs the plugin.
    async fn wait_and_run(&self) -> Result<RunOutput, CacheError> {
        let (parts, spec) = (&self.cache.inner.parts, &self.entry.spec);
        let ticket = parts.scheduler.enter(&spec.provider, self.flight.urgency());
        self.flight.queued(ticket.handle());
        let permit = ticket.turn().await.map_err(|throttled| throttled.into_error(spec.command()))?;
        self.flight.started(self.cache.now());
        self.entry.runs.fetch_add(1, Ordering::Relaxed);
        let result = parts.runner.run(Arc::clone(spec)).await;
        if !permit.finish(&result) {
            return Ok(result?);
        }
        // The issuer asked for fewer runs. Callers need to know that, and for how long.
        let throttled = parts.scheduler.throttled(&spec.provider);
        result.map_err(|error| {
            warn!("{}", chain(&error));
            throttled.map_or(error, |throttled| throttled.into_error(spec.command())).into()
        })
    }

    /// Ends without an outcome, because it is not needed.
    fn abandon(mut self) {
        self.is_over = true;
        Span::current().record("outcome", "abandoned");
        debug!("the run is no longer needed");
        let flight = &self.flight;
        self.entry.cell.send_if_modified(|state| {
            state.flight.take_if(|found| Arc::ptr_eq(found, flight));
            false
        });
        flight.publish(None);
    }

    /// Publishes the outcome. Everything that may panic comes before that: a run without an outcome leaves its callers
    /// waiting.
    fn publish(&mut self, result: Result<RunOutput, CacheError>) {
        let (held, last) = {
            let state = self.entry.cell.borrow();
            (state.current.clone(), state.failure.clone())
        };
        let outcome = result.and_then(|output| self.cache.accept(&self.entry, held.as_ref(), &output));
        let outcome = outcome.map_err(|error| self.cache.reject(held.as_ref(), last.as_ref(), error));
        if let (Some(failure), Ok(_)) = (&last, &outcome) {
            info!(failures = failure.attempts, "the plugin works again");
        }
        drop(held);
        self.is_over = true;
        let issued = outcome.as_ref().map(|current| Arc::clone(&current.issued));
        let issued = issued.map_err(Clone::clone);
        if issued.is_ok() {
            // A verification in progress holds the old credential.
            self.entry.forget_verification();
        }
        let (flight, mut is_retired) = (&self.flight, false);
        self.entry.cell.send_if_modified(|state| {
            is_retired = state.retired.is_some();
            // After an eviction the entry has another run or none, and does not keep this outcome.
            if state.flight.take_if(|found| Arc::ptr_eq(found, flight)).is_none() {
                return false;
            }
            match outcome {
                Ok(current) => state.accept(current),
                Err(failure) => state.failure = Some(failure),
            }
            true
        });
        // Not even the callers that wait get the credential of a definition that is no longer in force.
        flight.publish(Some(issued).filter(|_| !is_retired));
    }
}

impl<R: PluginRunner> Drop for Claim<R> {
    fn drop(&mut self) {
        if !self.is_over {
            let command = self.entry.spec.command();
            self.publish(Err(CacheError::Run(RunError::Panicked { command })));
        }
    }
}
