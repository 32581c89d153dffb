//! What a run leaves in its entry: a credential or a failure.

use std::sync::{Arc, atomic::Ordering};

use tracing::{Span, debug, field, warn};

use super::{
    CacheError, CredentialCache,
    entry::KeyEntry,
    policy::{self, Replacement},
    state::{Current, Failure},
};
use crate::{
    clock::Now,
    credential::{Draft, Generation, Issued, Lifetime, Material, lifetime},
    exec::{PluginRunner, RunOutput},
    text::chain,
};

impl<R: PluginRunner> CredentialCache<R> {
    /// What a printed credential becomes in `entry`, which holds `held`.
    pub(super) fn accept(
        &self,
        entry: &KeyEntry,
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
            warn!("the credential had already expired when it arrived; check the clock of this machine");
        }
        Ok(current)
    }

    /// Encodes a credential, once for all responses.
    fn issue(
        &self,
        entry: &KeyEntry,
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

    fn next_generation(&self) -> Generation {
        let number = self.inner.generations.fetch_add(1, Ordering::Relaxed);
        Generation::new(Arc::clone(&self.inner.parts.epoch), number)
    }

    /// The failure that `error` becomes beside the credential `held`, which stays as it is.
    pub(super) fn reject(
        &self,
        held: Option<&Current>,
        last: Option<&Failure>,
        error: CacheError,
    ) -> Failure {
        let (now, u) = (self.now(), (self.inner.parts.jitter)());
        let failure = Failure::after(last, error, now, u);
        let retry = failure.refresh_at.saturating_sub(now.boot);
        let served = held.is_some_and(|current| current.issued.is_valid_at(now));
        Span::current().record("outcome", "failed");
        // A repeated failure is logged at debug level; its end is logged again.
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
