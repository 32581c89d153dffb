//! All configured plugins, and how a request becomes one invocation of one of them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use serde::de::IgnoredAny;

use super::{
    PluginKey, PluginSpec, Provider, ResolveError, command::Lookup, from_caller, key::ProviderDigest,
};
use crate::credential::Cluster;

/// What a caller asks for.
#[derive(Clone, Default)]
pub struct Ask {
    /// Name of the provider.
    pub provider: String,
    /// What client-go told the caller about the cluster, if anything.
    pub cluster: Option<Cluster>,
    /// Of the caller's environment, as it sent it.
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Ask");
        shown.field("provider", &self.provider).field("cluster", &self.cluster.as_ref().map(|c| &c.server));
        shown.field("env", &self.env.keys()).finish()
    }
}

/// All configured plugins by name. Immutable; what a request adds goes into a value of its own.
#[derive(Debug, Default)]
pub struct Providers(HashMap<Arc<str>, Entry>);

#[derive(Debug)]
struct Entry {
    provider: Arc<Provider>,
    digest: ProviderDigest,
    lookup: Lookup,
}

impl Providers {
    /// Names are distinct, which the configuration has checked; of two the last one stays.
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        let entry = |provider: Provider| {
            let digest = ProviderDigest::of(&provider);
            (
                Arc::clone(&provider.name),
                Entry { provider: Arc::new(provider), digest, lookup: Lookup::default() },
            )
        };
        Self(providers.into_iter().map(entry).collect())
    }

    /// Every provider, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Provider>> {
        let sorted: BTreeMap<_, _> = self.0.iter().collect();
        sorted.into_values().map(|entry| &entry.provider)
    }

    /// Every name, sorted.
    pub fn names(&self) -> Vec<String> {
        self.iter().map(|provider| provider.name.to_string()).collect()
    }

    /// The provider of that name.
    pub fn find(&self, name: &str) -> Result<&Arc<Provider>, ResolveError> {
        let entry = self.0.get(name).map(|entry| &entry.provider);
        entry.ok_or_else(|| ResolveError::UnknownProvider { name: name.to_owned(), known: self.names() })
    }

    /// Turns a request into one invocation. Costs one `stat` and one hash; it may be asked on every request.
    pub fn resolve(&self, ask: Ask) -> Result<PluginSpec, ResolveError> {
        let Some(Entry { provider, digest, lookup }) = self.0.get(ask.provider.as_str()) else {
            return Err(ResolveError::UnknownProvider { name: ask.provider, known: self.names() });
        };
        if provider.needs_terminal {
            return Err(ResolveError::NeedsTerminal { provider: Arc::clone(&provider.name) });
        }
        let cluster = cluster_for(provider, ask.cluster)?;
        let caller_env = from_caller(ask.env, &provider.caller_env, &provider.env);
        if let Some((name, _)) = caller_env.iter().find(|(name, value)| !is_possible(name, value)) {
            return Err(ResolveError::InvalidVariable { name: name.clone() });
        }
        let executable = match lookup.executable(&provider.command, provider.inherited.get("PATH")) {
            Ok(Some(executable)) => executable,
            Ok(None) => {
                return Err(ResolveError::PluginNotFound {
                    provider: Arc::clone(&provider.name),
                    command: provider.command.clone(),
                    install_hint: provider.install_hint.clone(),
                });
            }
            Err(source) => {
                return Err(ResolveError::PluginUnreadable {
                    provider: Arc::clone(&provider.name),
                    command: provider.command.clone(),
                    source: Arc::new(source),
                });
            }
        };
        let key = PluginKey::of(*digest, &executable, cluster.as_ref(), &caller_env);
        Ok(PluginSpec { key, provider: Arc::clone(provider), executable, cluster, caller_env })
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

#[cfg(test)]
mod tests;
