//! Whether the clusters are ready, and the reason if they are not.

use std::{collections::HashMap, error::Error, hash::Hash, path::PathBuf, sync::Arc};

use credbroker_proto::{Reason, v1::cluster_state::Readiness as State};

use crate::status;
use credbroker_cache::{CredentialCache, Failed, Holding};
use credbroker_credential::text::chain;
use credbroker_fleet::{KnownProfile, resolver::Resolver};
use credbroker_plugin::{Context, Entry, ProfileName, ResolveError};
use credbroker_runner::PluginRunner;

/// A user of a kubeconfig, and the server of the cluster that its plugin receives.
type UserKey = ((PathBuf, Arc<str>), Option<String>);

/// The readiness of all profiles and contexts at one moment.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// With the rank of its state, from the best one.
    held: HashMap<ProfileName, (u8, State, Option<Failed>)>,
    /// States of the users of contexts.
    of_users: HashMap<UserKey, (u8, State, Option<Failed>)>,
    /// Providers whose plugins cannot run until something changes on this machine.
    broken: HashMap<Arc<str>, ResolveError>,
}

impl Readiness {
    /// Reads the whole cache, and checks each provider's plugin. Callers that send variables have separate keys; the
    /// best key of a profile counts.
    pub(super) fn of<R: PluginRunner>(cache: &CredentialCache<R>, resolver: &Resolver) -> Self {
        let mut all = Self::default();
        for (profile, holding, failed) in cache.profile_states() {
            keep_best(&mut all.held, profile, holding, failed);
        }
        for (spec, holding, failed) in cache.provider_states() {
            let Some(definition) = &spec.provider.definition else { continue };
            // A caller can send a cluster that is not the cluster of a context.
            if spec.cluster.as_ref().is_some_and(|cluster| !spec.provider.clusters.contains(cluster)) {
                continue;
            }
            let server = spec.cluster.as_ref().map(|cluster| cluster.server.clone());
            let user = (definition.identity.clone(), server);
            keep_best(&mut all.of_users, user, holding, failed);
        }
        let providers = resolver.providers();
        for provider in &providers.access {
            if let Err(error) = providers.is_runnable(provider) {
                all.broken.insert(Arc::clone(&provider.name), error);
            }
        }
        all
    }

    /// The readiness of a context, and if it is not ready, the stable reason and the error for people. `provider` is that of
    /// its user.
    pub(super) fn of_context(
        &self,
        context: &Context,
        provider: Result<&Entry, ResolveError>,
    ) -> (State, Option<(Reason, String)>) {
        let unusable =
            |error: &ResolveError| (State::Unusable, Some((status::resolve_reason(error), chain(error))));
        let (target, entry) = match (&context.outcome, provider) {
            (Ok(target), Ok(entry)) => (target, entry),
            (_, Err(error)) => return unusable(&error),
            (Err(why), Ok(_)) => return (State::Unusable, Some((Reason::UnknownContext, why.to_string()))),
        };
        let server = target.gives_cluster.then(|| target.cluster.server.clone());
        match (self.of_users.get(&(target.user.clone(), server)), entry.runnable()) {
            (Some((_, State::Failed, Some(failed))), _) => {
                (State::Failed, Some((status::cache_reason(&failed.error), chain(&failed.error))))
            }
            (None | Some((_, State::Idle, _)), Err(error)) => unusable(&error),
            (None, Ok(())) => (State::Idle, None),
            (Some((_, state, _)), _) => (*state, None),
        }
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

fn keep_best<K: Eq + Hash>(
    all: &mut HashMap<K, (u8, State, Option<Failed>)>,
    key: K,
    holding: Holding,
    failed: Option<Failed>,
) {
    let (rank, state) = match holding {
        Holding::Valid | Holding::Refreshing => (0, State::Ready),
        Holding::Waiting => (1, State::Fetching),
        Holding::Failed => (2, State::Failed),
        Holding::Empty => (3, State::Idle),
    };
    if all.get(&key).is_none_or(|(known, ..)| rank < *known) {
        all.insert(key, (rank, state, failed));
    }
}

#[cfg(test)]
mod tests;
