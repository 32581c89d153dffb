//! One run: it belongs to the cache, never to the caller that started it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tracing::{Instrument as _, Span, debug, field, info, info_span, warn};

use super::{
    CacheError, CredentialCache,
    entry::{Claim, Entry, Held},
    policy::{self, Replacement},
    state::{Current, Failure},
};
use crate::{
    credential::{Decoded, Generation, lifetime},
    exec::{PluginRunner, RunError},
};

impl<R: PluginRunner> CredentialCache<R> {
    /// Starts the run that `claim` stands for.
    pub(super) fn start(&self, claim: Claim) {
        let spec = Arc::clone(&claim.0.spec);
        let span = info_span!(
            "plugin_run",
            provider = %spec.provider.name,
            key = %spec.key,
            outcome = field::Empty,
            generation = field::Empty,
        );
        claim.0.runs.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::clone(&claim.0);
        let turn = Turn { claim: Some(claim), cache: self.clone() };
        let run = async move {
            let parts = &turn.cache.inner.parts;
            let result = tokio::select! {
                biased;
                () = parts.draining.cancelled() => Err(CacheError::Draining),
                // Also while it waits for a slot: else a profile that moves all the time keeps those of others busy.
                () = entry.useless() => return turn.abandon(),
                result = parts.runner.run(spec) => result.map(|output| output.decoded).map_err(CacheError::Run),
            };
            turn.publish(result);
        };
        self.inner.parts.tasks.spawn(run.instrument(span.or_current()));
    }

    fn next_generation(&self) -> Generation {
        let number = self.inner.generations.fetch_add(1, Ordering::Relaxed);
        Generation::new(Arc::clone(&self.inner.parts.epoch), number)
    }

    /// What an arrived credential leaves in the cell of `entry`.
    fn accept(&self, entry: &Entry, held: &Held, decoded: Decoded) -> Result<Current, CacheError> {
        let now = self.now();
        for warning in &decoded.warnings {
            warn!(command = %entry.spec.command(), "{warning}");
        }
        let lifetime = lifetime(&decoded, entry.spec.provider.lifetime, now.wall)
            .map_err(|source| CacheError::Lifetime { command: entry.spec.command(), source })?;
        let u = (self.inner.parts.jitter)();
        let next = || self.next_generation();
        let current = match policy::replace(held.current.as_ref(), decoded.material, lifetime, now, u, next) {
            Replacement::Unchanged(current) => record("unchanged", current),
            Replacement::Extended(current) => record("extended", current),
            Replacement::Rotated(current) => record("rotated", current),
        };
        if lifetime.within_skew {
            warn!("the credential had already expired when it arrived: is the clock of this machine right?");
        }
        if let Some(failure) = &held.failure {
            info!(failures = failure.attempts, "the plugin works again");
        }
        Ok(current)
    }

    /// What a failure leaves in the cell beside the credential, if any, which stays as it is.
    fn reject(&self, held: &Held, error: CacheError) -> Failure {
        let (now, u) = (self.now(), (self.inner.parts.jitter)());
        let failure = policy::fail(held.failure.as_ref(), error, now, u);
        let retry = failure.at(now).retry_after;
        let served = held.current.as_ref().is_some_and(|current| current.issued.is_valid_at(now));
        Span::current().record("outcome", "failed");
        // A repeated failure goes quiet; its end is told.
        if failure.attempts <= 3 {
            let cause = Causes(&failure.error);
            warn!(attempts = failure.attempts, ?retry, still_served = served, "{cause}");
        } else {
            debug!(attempts = failure.attempts, ?retry, still_served = served, "the plugin still fails");
        }
        failure
    }
}

fn record(outcome: &'static str, current: Current) -> Current {
    Span::current().record("outcome", outcome);
    Span::current().record("generation", field::display(&current.issued.generation));
    let left: Duration = current.issued.lifetime;
    debug!(lifetime = ?left, "credential {outcome}");
    current
}

/// Publishes the end of a run, even if it ends by a panic or with the runtime.
struct Turn<R: PluginRunner> {
    claim: Option<Claim>,
    cache: CredentialCache<R>,
}

impl<R: PluginRunner> Turn<R> {
    fn publish(mut self, result: Result<Decoded, CacheError>) {
        self.end(result);
    }

    fn abandon(mut self) {
        Span::current().record("outcome", "abandoned");
        debug!("what the run is for was forgotten, and nobody waits for it");
        if let Some(claim) = self.claim.take() {
            claim.abandon();
        }
    }

    /// What may panic comes before the claim is taken: a claim that is lost leaves everybody waiting for ever.
    fn end(&mut self, result: Result<Decoded, CacheError>) {
        let Some(Claim(entry)) = &self.claim else { return };
        let held = entry.held(); // nobody changes it while we have the turn
        let outcome = result.and_then(|decoded| self.cache.accept(entry, &held, decoded));
        let outcome = outcome.map_err(|error| self.cache.reject(&held, error));
        drop(held);
        if let Some(claim) = self.claim.take() {
            claim.finish(outcome, self.cache.now());
        }
    }
}

impl<R: PluginRunner> Drop for Turn<R> {
    fn drop(&mut self) {
        if let Some(claim) = &self.claim {
            let command = claim.0.spec.command();
            self.end(Err(CacheError::Run(RunError::Panicked { command })));
        }
    }
}

/// An error and its causes on one line.
struct Causes<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
