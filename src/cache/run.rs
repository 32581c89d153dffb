//! One run: it belongs to the cache, never to the caller that started it.

use std::sync::{Arc, atomic::Ordering};

use tracing::{Instrument as _, Span, debug, field, info, info_span, warn};

use super::{
    CacheError, CredentialCache,
    entry::{Entry, Look},
    flight::Flight,
    policy::{self, Replacement},
    state::{Current, Failure},
};
use crate::{
    clock::Now,
    credential::{Draft, Generation, Issued, Lifetime, Material, lifetime},
    exec::{PluginRunner, RunError, RunOutput},
    text::chain,
};

impl<R: PluginRunner> CredentialCache<R> {
    /// Starts the run that `look` made, if it made one.
    pub(super) fn start(&self, entry: &Arc<Entry>, look: &Look) {
        if let Some(flight) = look.flight.as_ref().filter(|_| look.starts) {
            self.take_off(entry, flight);
        }
    }

    fn take_off(&self, entry: &Arc<Entry>, flight: &Arc<Flight>) {
        let spec = &entry.spec;
        let span = info_span!(
            "plugin_run",
            provider = %spec.provider.name,
            key = %spec.key,
            outcome = field::Empty,
            generation = field::Empty,
        );
        let turn =
            Turn { entry: Arc::clone(entry), flight: Arc::clone(flight), cache: self.clone(), over: false };
        self.inner.parts.tasks.spawn(turn.run().instrument(span.or_current()));
    }

    fn next_generation(&self) -> Generation {
        let number = self.inner.generations.fetch_add(1, Ordering::Relaxed);
        Generation::new(Arc::clone(&self.inner.parts.epoch), number)
    }

    /// What an arrived credential leaves in the cell of `entry`, where `held` is.
    fn accept(
        &self,
        entry: &Entry,
        held: Option<&Current>,
        output: &RunOutput,
    ) -> Result<Current, CacheError> {
        let RunOutput { decoded, file_version: file } = output;
        let (now, file) = (self.now(), *file);
        for warning in &decoded.warnings {
            warn!(command = %entry.spec.command(), "{warning}");
        }
        let lifetime = lifetime(decoded, entry.spec.provider.lifetime, now.wall)
            .map_err(|source| CacheError::Lifetime { command: entry.spec.command(), source })?;
        let u = (self.inner.parts.jitter)();
        let material = &decoded.material;
        let issue = |generation, due_in| {
            let issued = self.issue(entry, generation, material, lifetime, now);
            Current::new(Arc::new(issued), due_in, now, file)
        };
        let (outcome, current) = match policy::replace(held, material, lifetime, now, u, file) {
            Replacement::Unchanged(current) => ("unchanged", current),
            Replacement::Extended { old, due_in } => ("extended", issue(old.generation.clone(), due_in)),
            Replacement::Rotated { due_in } => ("rotated", issue(self.next_generation(), due_in)),
        };
        Span::current().record("outcome", outcome);
        Span::current().record("generation", field::display(&current.issued.generation));
        debug!(lifetime = ?current.issued.lifetime, "credential {outcome}");
        if lifetime.within_skew {
            warn!("the credential had already expired when it arrived: is the clock of this machine right?");
        }
        Ok(current)
    }

    /// Encodes a credential, once for all who will get it.
    fn issue(
        &self,
        entry: &Entry,
        generation: Generation,
        material: &Material,
        lifetime: Lifetime,
        now: Now,
    ) -> Issued {
        let (token, pair) = Draft::secrets(material);
        let fingerprint = material.pair.as_ref().map(|pair| pair.fingerprint);
        let (expires_at, left) = (lifetime.expires_at, lifetime.left(now.wall));
        let encoded = (self.inner.parts.encode)(&Draft {
            generation: &generation,
            token,
            pair,
            fingerprint,
            expires_at,
            lifetime: left,
            cluster: entry.spec.endpoint(),
        });
        let within_skew = lifetime.within_skew;
        Issued { generation, encoded, fingerprint, fetched: now, expires_at, lifetime: left, within_skew }
    }

    /// What a failure leaves in the cell beside the credential, if any, which stays as it is.
    fn reject(&self, held: Option<&Current>, last: Option<&Failure>, error: CacheError) -> Failure {
        let (now, u) = (self.now(), (self.inner.parts.jitter)());
        let failure = Failure::after(last, error, now, u);
        let retry = failure.refresh_at.saturating_sub(now.boot);
        let served = held.is_some_and(|current| current.issued.is_valid_at(now));
        Span::current().record("outcome", "failed");
        // A repeated failure goes quiet; its end is logged.
        let quiet = failure.error.pause().is_some() || matches!(failure.error, CacheError::Draining);
        if failure.attempts <= 3 && !quiet {
            let cause = chain(&failure.error);
            warn!(attempts = failure.attempts, ?retry, still_served = served, "{cause}");
        } else {
            debug!(attempts = failure.attempts, ?retry, still_served = served, "the plugin still fails");
        }
        failure
    }
}

/// The end of a run, published even if the run ends by a panic or with the runtime.
struct Turn<R: PluginRunner> {
    entry: Arc<Entry>,
    flight: Arc<Flight>,
    cache: CredentialCache<R>,
    over: bool,
}

impl<R: PluginRunner> Turn<R> {
    async fn run(mut self) {
        let parts = &self.cache.inner.parts;
        let result = tokio::select! {
            biased;
            () = parts.draining.cancelled() => Err(CacheError::Draining),
            () = self.flight.given_up.cancelled() => return self.give_up(),
            result = self.take() => result,
        };
        self.end(result);
    }

    /// Waits for its turn, and runs.
    async fn take(&self) -> Result<RunOutput, CacheError> {
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
        // The issuer asked for fewer runs: that, and for how long, is what callers need to know.
        let throttled = parts.scheduler.throttled(&spec.provider);
        result.map_err(|error| {
            warn!("{}", chain(&error));
            throttled.map_or(error, |throttled| throttled.into_error(spec.command())).into()
        })
    }

    /// No one needs its outcome.
    fn give_up(mut self) {
        self.over = true;
        Span::current().record("outcome", "given up");
        debug!("the run is not needed any more");
        let flight = &self.flight;
        self.entry.cell.send_if_modified(|state| {
            state.flight.take_if(|found| Arc::ptr_eq(found, flight));
            false
        });
        flight.land(None);
    }

    /// What may panic comes before the outcome is published: a run without one leaves its callers waiting.
    fn end(&mut self, result: Result<RunOutput, CacheError>) {
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
        self.over = true;
        let issued = outcome.as_ref().map(|current| Arc::clone(&current.issued));
        let issued = issued.map_err(Clone::clone);
        if issued.is_ok() {
            // A question that was not answered holds the credential that it is about.
            self.entry.forget_verification();
        }
        let flight = &self.flight;
        self.entry.cell.send_if_modified(|state| {
            // After an eviction the cell leads elsewhere, and what began before it is not kept.
            if state.flight.take_if(|found| Arc::ptr_eq(found, flight)).is_none() {
                return false;
            }
            match outcome {
                Ok(current) => (state.current, state.failure) = (Some(current), None),
                Err(failure) => state.failure = Some(failure),
            }
            true
        });
        flight.land(Some(issued));
    }
}

impl<R: PluginRunner> Drop for Turn<R> {
    fn drop(&mut self) {
        if !self.over {
            let command = self.entry.spec.command();
            self.end(Err(CacheError::Run(RunError::Panicked { command })));
        }
    }
}
