//! What a run leaves in its entry: a credential or a failure.

use std::sync::{Arc, atomic::Ordering};

use tracing::warn;

use super::{
    CacheError, CredentialCache,
    entry::KeyEntry,
    policy::{self, Replacement},
    state::{Current, Failure},
};
use credbroker_credential::{Draft, Generation, Issued, Lifetime, Material, Validity, lifetime};
use credbroker_observe::{clock::Now, metrics::RunOutcome};
use credbroker_runner::{PluginRunner, RunOutput};

/// A credential that passed every check.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub current: Current,
    /// What it is beside the one that was held.
    pub outcome: RunOutcome,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// What a printed credential becomes in `entry`, which holds `held`.
    pub(super) fn accept(
        &self,
        entry: &KeyEntry,
        held: Option<&Current>,
        output: &RunOutput,
    ) -> Result<Accepted, CacheError> {
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
            Replacement::Unchanged(current) => (RunOutcome::Unchanged, current),
            Replacement::Extended { old, due_in } => {
                (RunOutcome::Extended, issue(old.generation.clone(), due_in))
            }
            Replacement::Rotated { due_in } => (RunOutcome::Rotated, issue(self.next_generation(), due_in)),
        };
        if lifetime.within_skew {
            warn!("the credential had already expired when it arrived; check the clock of this machine");
        }
        Ok(Accepted { current, outcome })
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
        let certificate =
            material.pair.as_ref().map(|pair| Validity { from: pair.not_before, to: pair.not_after });
        Issued {
            generation,
            encoded,
            fingerprint,
            certificate,
            fetched: now,
            expires_at,
            lifetime: left,
            within_skew,
            bound: lifetime.bound,
        }
    }

    fn next_generation(&self) -> Generation {
        let number = self.inner.generations.fetch_add(1, Ordering::Relaxed);
        Generation::new(Arc::clone(&self.inner.parts.epoch), number)
    }

    /// The failure that `error` becomes beside the credential `held`.
    pub(super) fn reject(
        &self,
        last: Option<&Failure>,
        error: CacheError,
        held: Option<&Current>,
    ) -> Failure {
        let now = self.now();
        let holds = held.is_some_and(|held| held.issued.is_valid_at(now));
        Failure::after(last, error, holds, now, (self.inner.parts.jitter)())
    }
}
