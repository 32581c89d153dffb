//! Puts a checked configuration in force.

use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::geteuid;
use tokio::sync::watch;

use super::super::limits;
use credbroker_cache::CredentialCache;
use credbroker_config::{ClusterProfiles, Config, Limits};
use credbroker_fleet::{Fleet, hub::HubReader, resolver::Resolver};
use credbroker_plugin::{Issuer, Provider, ProviderChanges, ProviderUpdate, Providers, access::Policy};
use credbroker_runner::{ProcessRunner, Scheduler};

/// The parts of a running broker that a configuration changes.
#[derive(Debug)]
pub(crate) struct Adopter {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) cache: CredentialCache<ProcessRunner>,
    pub(crate) scheduler: Scheduler,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) hub: HubReader<ProcessRunner>,
    /// The access rules in force.
    pub(crate) policies: watch::Sender<Arc<Policy>>,
    /// What the broker started with, for the settings that it cannot change while it runs.
    pub(crate) started: Config,
    pub(crate) limits: Mutex<Limits>,
}

#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) providers: ProviderChanges,
    /// Whether anything that is in use now has changed.
    pub(super) is_change: bool,
    /// Keys whose value is not the one in use until the broker starts again.
    pub(super) restart_needed: Vec<&'static str>,
}

impl Adopter {
    /// Puts `config` in force. Requests that were resolved before it end with the earlier providers if those stay, and
    /// with an error if not.
    ///
    /// Retired providers are out of use before the access rules change, and new ones are in use afterwards: at no moment
    /// does a rule apply to a definition of the other configuration. Credentials that a caller may have forged are
    /// forgotten before a rule gives them to others.
    pub(super) fn adopt(&self, config: Config) -> Adopted {
        let restart_needed = self.restart_needed(&config);
        let Config { providers, limits: in_force, cluster_profiles, access, .. } = config;
        let old = self.resolver.providers();
        let succession = ProviderUpdate::of(providers, &old);
        let providers = Arc::clone(&succession.providers);
        succession.commit();
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
        let before = {
            let mut old = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *old, in_force)
        };
        self.scheduler.set_limits(limits::runs(&in_force), issuers(&providers, cluster_profiles.as_ref()));
        self.scheduler.set_interactive(in_force.interactive_runs.get());
        self.cache.set_limits(limits::entries(&in_force));

        let fleet = cluster_profiles.is_some().then(|| Arc::clone(&self.fleet));
        self.resolver.replace(Arc::clone(&providers), fleet);
        let hub = self.hub.replace(cluster_profiles, &providers);
        let is_change = hub || access || before != in_force || !succession.changes.is_empty();
        Adopted { providers: succession.changes, is_change, restart_needed }
    }
    /// The keys of `newer` that are used after a restart only.
    fn restart_needed(&self, newer: &Config) -> Vec<&'static str> {
        let (old, limits, new_limits) = (&self.started, &self.started.limits, &newer.limits);
        let keys = [
            ("listen", old.listen != newer.listen),
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
