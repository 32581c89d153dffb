//! All configured plugins, and how a request becomes one invocation of one of them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    sync::Arc,
};

use serde::de::IgnoredAny;

use super::{
    Command, PluginKey, PluginSpec, Provider, command::Lookup, from_caller, key::ProviderDigest, nearest,
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

/// Why a request leads to no run. The same request leads nowhere again until somebody changes something.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The exec extension is not JSON, so the plugin could not read what it is told.
    #[error(
        "the exec extension of the cluster that the caller sent is not valid JSON (line {line}, column {column})"
    )]
    ClusterConfig {
        /// Where it stops being JSON.
        line: usize,
        /// Where it stops being JSON.
        column: usize,
    },
    /// A cluster without an address.
    #[error("the caller sent a cluster whose `server` is empty")]
    ClusterServer,
    /// A variable that no process can be given.
    #[error(
        "the caller's variable {name:?} cannot be passed on: a name has no `=` and is not empty, and neither it nor its value has a NUL"
    )]
    InvalidVariable {
        /// Its name.
        name: String,
    },
    /// `interactiveMode: Always`.
    #[error(
        "exec plugin cannot support interactive mode: standard input is unavailable: provider `{provider}` has `interactiveMode: Always`, and a broker has no terminal"
    )]
    NeedsTerminal {
        /// Name of the provider.
        provider: Arc<str>,
    },
    /// The plugin is to be told its cluster, which nobody knows.
    #[error("provider `{provider}` has `provideClusterInfo: true`, but the caller sent no cluster and {}; call with `provideClusterInfo: true` in the kubeconfig's `exec` stanza", known_clusters(*.known))]
    NoCluster {
        /// Name of the provider.
        provider: Arc<str>,
        /// How many clusters the kubeconfig uses this user for.
        known: usize,
    },
    /// No such file.
    #[error("plugin `{command}` of provider `{provider}` is not installed{}", place(.command, .install_hint.as_deref()))]
    PluginNotFound {
        /// Name of the provider.
        provider: Arc<str>,
        /// As configured.
        command: Command,
        /// `installHint` of the stanza, sanitised.
        install_hint: Option<String>,
    },
    /// The file cannot even be looked at.
    #[error("plugin `{command}` of provider `{provider}` cannot be looked up")]
    PluginUnreadable {
        /// Name of the provider.
        provider: Arc<str>,
        /// As configured.
        command: Command,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// No provider of that name.
    #[error("no provider is named `{name}`{}; known: {}", did_you_mean(.name, .known), .known.join(", "))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// Every configured name, sorted.
        known: Vec<String>,
    },
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

fn place(command: &Command, install_hint: Option<&str>) -> String {
    let place = match command {
        Command::Name(_) => " in the broker's PATH",
        Command::Path(_) => "",
    };
    install_hint.map_or_else(|| place.to_owned(), |hint| format!("{place}. {hint}"))
}

fn known_clusters(known: usize) -> String {
    match known {
        0 => "the broker knows none for it".to_owned(),
        several => format!("the broker's kubeconfig uses it for {several} clusters"),
    }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    let nearest = nearest(name, known.iter().map(String::as_str));
    nearest.map(|nearest| format!(", did you mean `{nearest}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
