//! All configured plugins, and one invocation of one of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::de::IgnoredAny;

use super::{
    Executable, PluginKey, PluginSpec, Provider, ResolveError, Target, command::Lookup, from_caller,
    key::RunDigest,
};
use crate::credential::Cluster;

/// All configured plugins by name. Immutable; what a request adds goes into a value of its own.
#[derive(Debug, Default)]
pub struct Providers {
    by_name: HashMap<Arc<str>, Entry>,
    /// In the configuration's order.
    access: Vec<Arc<Provider>>,
}

/// One provider, with what is the same for each of its runs.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) provider: Arc<Provider>,
    digest: RunDigest,
    lookup: Lookup,
}

impl Providers {
    /// In the configuration's order. Names are distinct, which the configuration has checked; of two the last one stays.
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        let mut all = Self::default();
        for provider in providers {
            let (digest, provider) = (RunDigest::of(&provider), Arc::new(provider));
            all.access.retain(|earlier| earlier.name != provider.name);
            if provider.profile_sourced.is_some() {
                all.access.push(Arc::clone(&provider));
            }
            let name = Arc::clone(&provider.name);
            all.by_name.insert(name, Entry { provider, digest, lookup: Lookup::default() });
        }
        all
    }

    /// Those that may serve ClusterProfiles, in the configuration's order.
    pub fn access_providers(&self) -> &[Arc<Provider>] {
        &self.access
    }

    /// Every provider, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Provider>> {
        let sorted: BTreeMap<_, _> = self.by_name.iter().collect();
        sorted.into_values().map(|entry| &entry.provider)
    }

    /// Every name, sorted.
    pub fn names(&self) -> Vec<String> {
        self.iter().map(|provider| provider.name.to_string()).collect()
    }

    /// The provider of that name.
    pub fn find(&self, name: &str) -> Result<&Arc<Provider>, ResolveError> {
        self.entry(name).map(|entry| &entry.provider)
    }

    /// Whether a request for that provider would start something: its plugin is there and needs no terminal.
    pub fn runnable(&self, name: &str) -> Result<(), ResolveError> {
        let entry = self.entry(name)?;
        entry.can_run_unattended()?;
        entry.executable().map(drop)
    }

    pub(super) fn entry(&self, name: &str) -> Result<&Entry, ResolveError> {
        let unknown = || ResolveError::UnknownProvider { name: name.to_owned(), known: self.names() };
        self.by_name.get(name).ok_or_else(unknown)
    }
}

impl Entry {
    /// One run of the provider as it is configured.
    pub(super) fn of_provider(
        &self,
        sent: Option<Cluster>,
        env: BTreeMap<String, String>,
    ) -> Result<PluginSpec, ResolveError> {
        self.can_run_unattended()?;
        let provider = &self.provider;
        let cluster = cluster_for(provider, sent)?.map(Arc::new);
        let caller_env = caller_env(provider, env)?;
        let executable = self.executable()?;
        let key = PluginKey::of(self.digest, &executable, cluster.as_deref(), &caller_env);
        let provider = Arc::clone(provider);
        Ok(PluginSpec { key, provider, executable, cluster, caller_env, target: None })
    }

    /// One run for a ClusterProfile that leads to this provider.
    pub(super) fn of_target(
        &self,
        target: Arc<Target>,
        env: BTreeMap<String, String>,
    ) -> Result<PluginSpec, ResolveError> {
        self.can_run_unattended()?;
        let provider = &target.provider;
        let caller_env = caller_env(provider, env)?;
        let executable = self.executable()?;
        // The endpoint is part of the digest, whether the plugin is told it or not.
        let key = PluginKey::of(target.digest, &executable, None, &caller_env);
        let cluster = provider.provide_cluster_info.then(|| Arc::clone(&target.endpoint));
        let provider = Arc::clone(provider);
        Ok(PluginSpec { key, provider, executable, cluster, caller_env, target: Some(target) })
    }

    /// There is no terminal here.
    fn can_run_unattended(&self) -> Result<(), ResolveError> {
        if self.provider.needs_terminal {
            return Err(ResolveError::NeedsTerminal { provider: Arc::clone(&self.provider.name) });
        }
        Ok(())
    }

    fn executable(&self) -> Result<Executable, ResolveError> {
        let provider = &self.provider;
        match self.lookup.executable(&provider.command, provider.inherited.get("PATH")) {
            Ok(Some(executable)) => Ok(executable),
            Ok(None) => Err(ResolveError::PluginNotFound {
                provider: Arc::clone(&provider.name),
                command: provider.command.clone(),
                install_hint: provider.install_hint.clone(),
            }),
            Err(source) => Err(ResolveError::PluginUnreadable {
                provider: Arc::clone(&provider.name),
                command: provider.command.clone(),
                source: Arc::new(source),
            }),
        }
    }
}

fn caller_env(
    provider: &Provider,
    env: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ResolveError> {
    let env = from_caller(env, &provider.caller_env, &provider.env);
    match env.iter().find(|(name, value)| !is_possible(name, value)) {
        Some((name, _)) => Err(ResolveError::InvalidVariable { name: name.clone() }),
        None => Ok(env),
    }
}

/// What the plugin is told: nothing unless the provider wants it; else what the caller sent, which is for this request
/// alone, or the one cluster that the kubeconfig uses this user for.
fn cluster_for(provider: &Provider, sent: Option<Cluster>) -> Result<Option<Cluster>, ResolveError> {
    if !provider.provide_cluster_info {
        return Ok(None);
    }
    let Some(cluster) = sent else {
        return match provider.clusters.as_slice() {
            [only] => Ok(Some(only.clone())),
            several => {
                Err(ResolveError::NoCluster { provider: Arc::clone(&provider.name), known: several.len() })
            }
        };
    };
    if cluster.server.is_empty() {
        return Err(ResolveError::ClusterServer);
    }
    if !cluster.config.is_empty() {
        serde_json::from_slice::<IgnoredAny>(&cluster.config)
            .map_err(|error| ResolveError::ClusterConfig { line: error.line(), column: error.column() })?;
    }
    Ok(Some(cluster))
}

/// Whether the kernel can give a process this variable.
fn is_possible(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}
