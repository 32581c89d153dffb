//! Whether the clusters are ready, and the reason if they are not.

use std::{collections::HashMap, error::Error, sync::Arc};

use credbroker_proto::{Reason, v1::cluster_state::Readiness as State};

use crate::status;
use credbroker_cache::{CredentialCache, Failed, Holding};
use credbroker_fleet::{KnownProfile, resolver::Resolver};
use credbroker_plugin::{ProfileName, ResolveError};
use credbroker_runner::PluginRunner;

/// The readiness of all profiles at one moment.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// With the rank of its state, from the best one.
    held: HashMap<ProfileName, (u8, State, Option<Failed>)>,
    /// Providers whose plugins cannot run until something changes on this machine.
    broken: HashMap<Arc<str>, ResolveError>,
}

impl Readiness {
    /// Reads the whole cache, and checks each provider's plugin. Callers that send variables have separate keys; the
    /// best key of a profile counts.
    pub(super) fn of<R: PluginRunner>(cache: &CredentialCache<R>, resolver: &Resolver) -> Self {
        let mut all = Self::default();
        for (profile, holding, failed) in cache.profile_states() {
            let (rank, state) = match holding {
                Holding::Valid | Holding::Refreshing => (0, State::Ready),
                Holding::Waiting => (1, State::Fetching),
                Holding::Failed => (2, State::Failed),
                Holding::Empty => (3, State::Idle),
            };
            if all.held.get(&profile).is_none_or(|(known, ..)| rank < *known) {
                all.held.insert(profile, (rank, state, failed));
            }
        }
        let providers = resolver.providers();
        for provider in &providers.access {
            if let Err(error) = providers.is_runnable(provider) {
                all.broken.insert(Arc::clone(&provider.name), error);
            }
        }
        all
    }

    /// The readiness of a profile, and if it is not ready, the stable reason, and the error for people.
    pub(super) fn of_profile<'a>(
        &'a self,
        known: &'a KnownProfile,
    ) -> (State, Option<(Reason, &'a dyn Error)>) {
        let target = match &known.outcome {
            Ok(target) => target,
            Err(error) => return (State::Unusable, Some((status::profile_reason(error), error))),
        };
        match (self.held.get(&known.profile.name), self.broken.get(&target.provider.name)) {
            (Some((_, State::Failed, Some(failed))), _) => {
                (State::Failed, Some((status::cache_reason(&failed.error), &failed.error)))
            }
            (None | Some((_, State::Idle, _)), Some(error)) => {
                (State::Unusable, Some((status::resolve_reason(error), error)))
            }
            (None, None) => (State::Idle, None),
            (Some((_, state, _)), _) => (*state, None),
        }
    }
}

#[cfg(test)]
mod tests;
