//! Makes a checked configuration active.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::geteuid;
use tokio::sync::watch;
use tracing::warn;

use credbroker_cache::{CredentialCache, EntryLimits};
use credbroker_config::{ClusterProfiles, Config, Limits};
use credbroker_fleet::{Fleet, hub::HubReader, resolver::Resolver};
use credbroker_plugin::{Issuer, Provider, ProviderChanges, ProviderUpdate, Providers, access::Policy};
use credbroker_runner::{ProcessRunner, Scheduler};
use credbroker_uds_server as uds;

/// The parts of a running broker that a configuration changes.
#[derive(Debug)]
pub(crate) struct Adopter {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) cache: CredentialCache<ProcessRunner>,
    pub(crate) scheduler: Scheduler,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) hub: HubReader<ProcessRunner>,
    /// The active access rules.
    pub(crate) policies: watch::Sender<Arc<Policy>>,
    /// What the broker started with, for the settings that it cannot change while it runs.
    pub(crate) started: Config,
    pub(crate) limits: Mutex<Limits>,
    /// Whether the proxy runs in this process.
    pub(crate) has_proxy: bool,
}

/// What a configuration changes.
pub(crate) trait Adopt: fmt::Debug + Send + Sync + 'static {
    /// The active providers.
    fn providers(&self) -> Arc<Providers>;

    /// Makes `config` active.
    fn adopt(&self, config: Config) -> Adopted;
}

#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) providers: ProviderChanges,
    /// Whether anything that is in use now has changed.
    pub(crate) is_change: bool,
    /// Keys whose value is not the one in use until the process starts again.
    pub(crate) restart_needed: Vec<&'static str>,
}

impl Adopt for Adopter {
    fn providers(&self) -> Arc<Providers> {
        self.resolver.providers()
    }

    /// Makes `config` active. Requests that were resolved before it end with the earlier providers if those stay, and
    /// with an error if not.
    ///
    /// Retired providers are out of use before the access rules change, and new ones are in use afterwards: at no moment
    /// does a rule apply to a definition of the other configuration. Credentials that a caller may have forged are
    /// evicted before a rule gives them to others.
    fn adopt(&self, config: Config) -> Adopted {
        let restart_needed = self.restart_needed(&config);
        let Config { providers, limits, cluster_profiles, access, .. } = config;
        let old = self.resolver.providers();
        let update = ProviderUpdate::of(providers, &old);
        let providers = Arc::clone(&update.providers);
        update.commit();
        self.cache.forget_retired();

        // Before all that takes long, so that nothing delays the loss of a right.
        let newer = Arc::clone(&self.policies.borrow());
        let newer = if newer.is_of(&access) { newer } else { Arc::new(Policy::new(access)) };
        for provider in providers.iter().filter(|provider| is_shared(provider, &newer)) {
            provider.state.set_shared(true);
        }
        self.cache.forget_leased();
        let access = self.policies.send_if_modified(|policy| {
            let differs = !Arc::ptr_eq(policy, &newer);
            policy.clone_from(&newer);
            differs
        });
        note_shared(&providers, &newer);
        let before =
            std::mem::replace(&mut *self.limits.lock().unwrap_or_else(PoisonError::into_inner), limits);
        self.scheduler.set_limits(run_limit(&limits), issuers(&providers, cluster_profiles.as_ref()));
        self.scheduler.set_interactive(limits.interactive_runs.get());
        self.cache.set_limits(entry_limits(&limits));

        let fleet = cluster_profiles.is_some().then(|| Arc::clone(&self.fleet));
        self.resolver.replace(Arc::clone(&providers), fleet);
        let hub = self.hub.replace(cluster_profiles, &providers);
        let is_change = hub || access || before != limits || !update.changes.is_empty();
        Adopted { providers: update.changes, is_change, restart_needed }
    }
}

impl Adopter {
    fn restart_needed(&self, newer: &Config) -> Vec<&'static str> {
        let (old, limits, new_limits) = (&self.started, &self.started.limits, &newer.limits);
        let keys = [
            ("listen", old.listen != newer.listen),
            ("proxy", self.has_proxy && old.proxy != newer.proxy),
            ("metrics", old.metrics != newer.metrics),
            ("audit", old.audit != newer.audit),
            ("limits.connections", limits.connections != new_limits.connections),
            ("limits.bytes", limits.bytes != new_limits.bytes),
        ];
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// Notes which providers have credentials that `policy` gives to other users than the broker's own and root. Leases depend
/// on it.
pub(crate) fn note_shared(providers: &Providers, policy: &Policy) {
    for provider in providers.iter() {
        provider.state.set_shared(is_shared(provider, policy));
    }
}

fn is_shared(provider: &Provider, policy: &Policy) -> bool {
    !policy.is_alone(geteuid().as_raw(), &provider.name)
}

fn issuers(providers: &Providers, section: Option<&ClusterProfiles>) -> Vec<Arc<Issuer>> {
    let hub = section.and_then(ClusterProfiles::plugin).map(|plugin| Arc::clone(&plugin.issuer));
    providers.iter().map(|provider| Arc::clone(&provider.issuer)).chain(hub).collect()
}

/// The plugin runs at a time: as many as configured, or as the limit of open files allows.
pub(crate) fn run_limit(limits: &Limits) -> usize {
    let runs = uds::affordable_runs(limits.plugin_runs.get());
    if runs < limits.plugin_runs.get() {
        warn!(
            runs,
            "fewer plugins run at a time than `limits.pluginRuns` allows: the limit of open files is low"
        );
    }
    runs
}

pub(crate) fn entry_limits(limits: &Limits) -> EntryLimits {
    EntryLimits { entries: limits.credentials.get(), bytes: limits.credential_bytes.get() }
}

pub(crate) fn connection_limits(limits: &Limits) -> uds::Limits {
    uds::Limits {
        connections: limits.connections.get(),
        bytes: limits.bytes.get(),
        runs: limits.plugin_runs.saturating_add(limits.interactive_runs.get()).get(),
    }
}
