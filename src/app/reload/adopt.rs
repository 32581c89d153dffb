//! Puts a checked configuration in force.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    cache::CredentialCache,
    config::{ClusterProfiles, Config, HubAccess, Limits, Listen, MetricsAddress},
    exec::{ProcessRunner, Scheduler},
    fleet::Fleet,
    hub::HubReader,
    metrics::Metrics,
    plugin::{Issuer, ProviderChanges, Providers, Succession},
    resolver::{Resolver, World},
};

/// The parts of a running broker that a configuration changes.
#[derive(Debug)]
pub(crate) struct Adopter {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) cache: CredentialCache<ProcessRunner>,
    pub(crate) scheduler: Scheduler,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) hub: Arc<HubReader<ProcessRunner>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started: Started,
    /// The limits in force.
    pub(crate) limits: Mutex<Limits>,
}

/// The settings that a broker cannot change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) listen: Vec<Listen>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Option<MetricsAddress>,
}

/// What a newer configuration has changed.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Adopted {
    pub(super) providers: ProviderChanges,
    /// Whether limits have changed.
    pub(super) limits: bool,
    /// Whether the hub has changed.
    pub(super) is_hub_changed: bool,
    /// Keys whose value is not the one in use until the broker starts again.
    pub(super) restart_needed: Vec<&'static str>,
}

impl Started {
    /// The keys of `newer` that are used after a restart only.
    fn differs(&self, newer: &Config) -> Vec<&'static str> {
        let (limits, newer_limits) = (&self.limits, &newer.limits);
        let keys = [
            ("listen", self.listen != newer.listen),
            ("metrics", self.metrics != newer.metrics),
            ("limits.connections", limits.connections != newer_limits.connections),
            (
                "limits.watchesPerConnection",
                limits.watches_per_connection != newer_limits.watches_per_connection,
            ),
        ];
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

impl Adopter {
    /// Puts `config` in force. Requests that were resolved before it end with the earlier providers if those stay, and
    /// with an error if not.
    pub(super) fn adopt(&self, config: Config) -> Adopted {
        let restart_needed = self.started.differs(&config);
        let Config { providers, limits, cluster_profiles, .. } = config;
        let old = self.resolver.providers();
        let succession = Succession::of(providers, &old);
        let changes = succession.changes(&old);
        let providers = Arc::clone(&succession.providers);

        let before = {
            let mut in_force = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *in_force, limits)
        };
        self.scheduler.set_limits(limits.plugin_runs.get(), issuers(&providers, cluster_profiles.as_ref()));
        self.cache.set_limit(limits.entries.get());

        let fleet = cluster_profiles.is_some().then(|| Arc::clone(&self.fleet));
        self.resolver.replace(World { providers: Arc::clone(&providers), fleet });
        // Only now: no request resolves to a retired provider after this.
        succession.commit();
        self.cache.forget_retired();
        let is_hub_changed = self.hub.replace(cluster_profiles, &providers);
        Adopted { providers: changes, limits: before != limits, is_hub_changed, restart_needed }
    }
}

/// The issuers of all plugins.
fn issuers(providers: &Providers, section: Option<&ClusterProfiles>) -> Vec<Arc<Issuer>> {
    let hub = section.and_then(|section| match &section.hub {
        HubAccess::Kubeconfig { plugin, .. } => plugin.as_ref().map(|plugin| Arc::clone(&plugin.issuer)),
        HubAccess::InCluster => None,
    });
    providers.iter().map(|provider| Arc::clone(&provider.issuer)).chain(hub).collect()
}
