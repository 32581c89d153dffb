//! How a provider and a request lead to one run.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::IgnoredAny;

use super::{
    behaviour::Interactive,
    caller::{Origin, check, reaches},
    error::ResolveError,
    key::PluginKey,
    provider::Provider,
    providers::Entry,
    spec::PluginSpec,
    target::Target,
};
use credbroker_credential::Cluster;

/// The run that a request leads to. The cluster and the variables of the caller are passed to each method.
#[derive(Debug)]
pub struct Route<'a> {
    entry: &'a Entry,
    place: ClusterChoice<'a>,
}

/// The cluster of a run.
#[derive(Debug)]
enum ClusterChoice<'a> {
    /// The run has no cluster.
    Nowhere,
    /// The cluster that the caller sent; the plugin receives it.
    Sent,
    /// A configured cluster; the plugin receives it.
    Known(&'a Cluster),
    /// The run is for a ClusterProfile, whose endpoint the plugin receives if the provider wants it.
    Profile(Arc<Target>),
}

impl Entry {
    /// The provider as configured, for a caller that sent this cluster. If the provider wants a cluster, the plugin
    /// receives the one that the caller sent, else the only one that the kubeconfig uses this user for.
    pub fn of_provider(&self, sent: Option<&Cluster>) -> Result<Route<'_>, ResolveError> {
        let known = self.provider.clusters.as_slice();
        match (sent, known) {
            _ if !self.provider.provide_cluster_info => self.route(ClusterChoice::Nowhere),
            (Some(sent), _) if sent.server.is_empty() => {
                Err(ResolveError::ClusterServer { provider: Arc::clone(&self.provider.name) })
            }
            (Some(_), _) => self.route(ClusterChoice::Sent),
            (None, [only]) => self.route(ClusterChoice::Known(only)),
            (None, several) => {
                let provider = Arc::clone(&self.provider.name);
                Err(ResolveError::NoCluster { provider, known: several.len() })
            }
        }
    }

    /// The provider for one of its configured clusters.
    pub fn of_known<'a>(&'a self, known: &'a Cluster) -> Result<Route<'a>, ResolveError> {
        if !self.provider.provide_cluster_info {
            return self.route(ClusterChoice::Nowhere);
        }
        if known.server.is_empty() {
            return Err(ResolveError::ClusterServer { provider: Arc::clone(&self.provider.name) });
        }
        self.route(ClusterChoice::Known(known))
    }

    /// This provider for the ClusterProfile of `target`.
    pub fn of_target(&self, target: Arc<Target>) -> Result<Route<'_>, ResolveError> {
        self.route(ClusterChoice::Profile(target))
    }

    fn route<'a>(&'a self, place: ClusterChoice<'a>) -> Result<Route<'a>, ResolveError> {
        // There is no person whose terminal could be used.
        if matches!(place, ClusterChoice::Profile(_)) && self.provider.interactive == Interactive::Always {
            return Err(ResolveError::NeedsTerminal { provider: Arc::clone(&self.provider.name) });
        }
        Ok(Route { entry: self, place })
    }
}

impl Route<'_> {
    /// Checks whether a caller at `origin` may send these variables. Every request needs this check: a caller with more
    /// rights may have requested the credential in the cache.
    pub fn check(&self, env: &BTreeMap<String, String>, origin: Origin) -> Result<(), ResolveError> {
        check(env, origin, self.provider())
    }

    /// The key of the run for a caller that sent this cluster and these variables.
    pub fn key(&self, sent: Option<&Cluster>, env: &BTreeMap<String, String>) -> PluginKey {
        let provider = self.provider();
        let caller_env = env.iter().filter(|(name, _)| reaches(name, provider));
        let caller_env = caller_env.map(|(name, value)| (name.as_str(), value.as_str()));
        let digest = self.entry.digest;
        match &self.place {
            ClusterChoice::Nowhere => PluginKey::of(digest, None, caller_env),
            ClusterChoice::Sent => PluginKey::of(digest, sent, caller_env),
            ClusterChoice::Known(cluster) => PluginKey::of(digest, Some(cluster), caller_env),
            // The endpoint is part of the digest, whether the plugin receives it or not.
            ClusterChoice::Profile(target) => PluginKey::of(target.digest, None, caller_env),
        }
    }

    /// The run for a caller that sent this cluster and these variables.
    pub fn spec(
        self,
        sent: Option<Cluster>,
        mut env: BTreeMap<String, String>,
    ) -> Result<PluginSpec, ResolveError> {
        if let (ClusterChoice::Sent, Some(sent)) = (&self.place, &sent) {
            check_config(sent, &self.entry.provider.name)?;
        }
        let key = self.key(sent.as_ref(), &env);
        let provider = Arc::clone(self.provider());
        env.retain(|name, _| reaches(name, &provider));
        let (cluster, target) = match self.place {
            ClusterChoice::Nowhere => (None, None),
            ClusterChoice::Sent => (sent.map(Arc::new), None),
            ClusterChoice::Known(cluster) => (Some(Arc::new(cluster.clone())), None),
            ClusterChoice::Profile(target) => {
                let cluster = provider.provide_cluster_info.then(|| Arc::clone(&target.endpoint));
                (cluster, Some(target))
            }
        };
        Ok(PluginSpec { key, provider, file: Arc::clone(&self.entry.file), cluster, caller_env: env, target })
    }

    /// The provider of the run: a profile may add to the configured one.
    fn provider(&self) -> &Arc<Provider> {
        match &self.place {
            ClusterChoice::Profile(target) => &target.provider,
            _ => &self.entry.provider,
        }
    }
}

/// Checks that the exec extension is JSON: the plugin could not read it otherwise.
fn check_config(cluster: &Cluster, provider: &Arc<str>) -> Result<(), ResolveError> {
    if cluster.config.is_empty() {
        return Ok(());
    }
    serde_json::from_slice::<IgnoredAny>(&cluster.config).map(drop).map_err(|error| {
        let provider = Arc::clone(provider);
        ResolveError::ClusterConfig { provider, line: error.line(), column: error.column() }
    })
}
