//! Whether the broker, its providers and its clusters are ready, and the reason if they are not.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::Arc,
};

use credbroker_proto::{Reason, v1::cluster_state::Readiness as State};

use super::status;
use credbroker_cache::{CredentialCache, Failed, Holding, ProviderSummary};
use credbroker_fleet::{Fleet, KnownProfile, resolver::Resolver};
use credbroker_plugin::{ProfileName, ResolveError};
use credbroker_runner::PluginRunner;

/// The name of a provider that is checked, and why it is not ready.
pub(super) type ProviderChecks = BTreeMap<Arc<str>, Option<Reason>>;

/// Checks whether the broker is ready.
#[derive(Debug)]
pub struct HealthChecks<R> {
    pub(super) cache: CredentialCache<R>,
    pub(super) resolver: Arc<Resolver>,
}

/// The result of all checks.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Checks {
    /// The broker itself, and the hub if there is one, and why they are not ready.
    pub(super) parts: Vec<(&'static str, Option<Reason>)>,
    pub(super) providers: ProviderChecks,
}

impl Checks {
    /// Replaces the providers by one of the name `*`, which is ready if all are.
    pub(super) fn merge_providers(&mut self) {
        let merged = self.providers.values().fold(None, |first, reason| first.or(*reason));
        self.providers = ProviderChecks::from([("*".into(), merged)]);
    }

    /// Whether everything is ready, except the providers in `excluded`.
    pub(super) fn is_ready(&self, excluded: &[String]) -> bool {
        let counts = |name: &str| !excluded.iter().any(|excluded| excluded == name);
        let mut providers = self.providers.iter().filter(|(name, _)| counts(name));
        self.parts.iter().all(|(_, reason)| reason.is_none()) && providers.all(|(_, reason)| reason.is_none())
    }
}

impl<R: PluginRunner> HealthChecks<R> {
    /// Creates the checks of the broker that these are parts of.
    pub fn new(cache: CredentialCache<R>, resolver: Arc<Resolver>) -> Self {
        Self { cache, resolver }
    }

    /// Checks everything.
    pub(super) async fn all(&self) -> Checks {
        let (providers, _) = self.providers(None).await;
        // After the first read the known profiles stay in use, also while the hub is not available.
        let hub = |fleet: Arc<Fleet>| ("hub", (!fleet.hub().synced).then_some(Reason::HubUnavailable));
        let parts = [("broker", self.draining())].into_iter().chain(self.resolver.fleet().map(hub)).collect();
        Checks { parts, providers }
    }

    /// Checks one provider, or all, and returns what was read for it. A provider is ready while it has a valid
    /// credential, also if a later run failed; else if its plugin is installed and its last run did not fail.
    pub(super) async fn providers(
        &self,
        only: Option<&str>,
    ) -> (ProviderChecks, BTreeMap<Arc<str>, ProviderSummary>) {
        let summaries = self.cache.summaries(only).await;
        let mut checks = ProviderChecks::new();
        let providers = self.resolver.providers();
        for provider in providers.iter().filter(|provider| only.is_none_or(|only| *provider.name == *only)) {
            let summary = summaries.get(&provider.name);
            let reason = match (summary, providers.is_runnable(provider)) {
                _ if self.draining().is_some() => self.draining(),
                (Some(summary), _) if summary.holds_valid() => None,
                (_, Err(error)) => Some(status::resolve_reason(&error)),
                (Some(ProviderSummary { failed: Some(failed), .. }), Ok(())) => {
                    Some(status::cache_reason(&failed.error))
                }
                _ => None,
            };
            // Of several definitions of one name, one that is not ready counts.
            let check = checks.entry(Arc::clone(&provider.name)).or_default();
            *check = check.or(reason);
        }
        (checks, summaries)
    }

    fn draining(&self) -> Option<Reason> {
        self.cache.is_draining().then_some(Reason::Draining)
    }
}

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
                Holding::Valid | Holding::Renewing => (0, State::Ready),
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
            if let Err(error) = providers.runnable(&provider.name) {
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
