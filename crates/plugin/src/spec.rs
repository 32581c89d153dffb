//! One run of a plugin, resolved for a request, and what its key is made of.

use std::{collections::BTreeMap, ffi::OsString, sync::Arc};

use super::{
    environment::Session,
    file::PluginFile,
    key::{IdPart, PartKind, PartOrigin, PluginKey},
    profile::ProfileName,
    provider::Provider,
};
use credbroker_credential::Cluster;

/// Everything that a run needs, resolved for one request. Equal keys mean equal runs. `Debug` shows no variable.
#[derive(derive_more::Debug)]
#[debug("PluginSpec({key}, {provider:?})")]
pub struct PluginSpec {
    /// Key of the run: a hash of everything that can change the answer, and nothing else.
    pub key: PluginKey,
    /// The configured plugin.
    pub provider: Arc<Provider>,
    /// The file that runs. It is not part of the key: after an upgrade, a credential in the cache is due but usable.
    pub file: Arc<PluginFile>,
    /// Cluster that the plugin receives; `None` unless the provider wants it.
    pub cluster: Option<Arc<Cluster>>,
    /// Variables of the caller that reach the plugin.
    pub caller_env: BTreeMap<String, String>,
    /// ClusterProfile that the run is for; `None`: the request named the provider.
    pub target: Option<Arc<Target>>,
}

impl PluginSpec {
    /// Cluster that the credential is for, if known: the ClusterProfile's endpoint, else what the plugin receives.
    pub fn endpoint(&self) -> Option<&Cluster> {
        let endpoint = self.target.as_ref().map(|target| &*target.endpoint);
        endpoint.or(self.cluster.as_deref())
    }

    /// Name of the plugin in messages: its executable, without arguments or environment.
    pub fn command(&self) -> Arc<str> {
        self.file.to_string().into()
    }

    /// The parts of its key.
    pub fn id_parts(&self) -> Vec<IdPart<'_>> {
        // Without what a ClusterProfile adds.
        let configured = self.target.as_ref().map_or(&self.provider, |target| &target.configured);
        let mut parts = IdPart::of_run(&self.provider, configured, &self.caller_env);
        parts.extend(self.target.iter().map(|target| IdPart::of_profile(&target.profile)));
        if let Some(cluster) = self.endpoint() {
            let origin = match &self.target {
                Some(_) => PartOrigin::ClusterProfile,
                None if self.provider.clusters.contains(cluster) => PartOrigin::Kubeconfig,
                None => PartOrigin::Caller,
            };
            parts.extend(IdPart::of_cluster(cluster, origin));
        }
        parts
    }

    /// The parts from a caller or the ClusterProfile that reach the plugin. Without any, the configuration defines the run.
    pub fn foreign_parts(&self) -> Vec<IdPart<'_>> {
        use PartOrigin::{
            Always, Caller, CallerEnv, ClusterProfile, Kubeconfig, PassEnv, Stanza, Unspecified,
        };
        let mut parts = self.id_parts();
        parts.retain(|part| match part.origin {
            Caller | CallerEnv => true,
            ClusterProfile => match part.kind {
                PartKind::Argument | PartKind::Variable => true,
                PartKind::Cluster => self.cluster.is_some(),
                _ => false,
            },
            Unspecified | Stanza | Always | PassEnv | Kubeconfig => false,
        });
        parts
    }

    /// The environment without `KUBERNETES_EXEC_INFO`: inherited, the caller's, `session`, the stanza's; a later one wins.
    pub fn environment(&self, session: Option<&Session>) -> BTreeMap<OsString, OsString> {
        let mut env = self.provider.inherited.0.clone();
        env.extend(self.caller_env.iter().map(|(name, value)| (name.into(), value.into())));
        env.extend(self.provider.env.iter().map(|(name, value)| (name.into(), value.into())));
        let is_set = |name: &str| self.provider.env.iter().any(|(set, _)| set == name);
        Session::put(session, &mut env, is_set);
        env
    }
}

/// The plugin run that a ClusterProfile leads to, and the cluster that its credential is for.
#[derive(Debug)]
pub struct Target {
    /// The profile.
    pub profile: ProfileName,
    /// The plugin, with what the profile adds.
    pub provider: Arc<Provider>,
    /// The same plugin as configured, without what the profile adds.
    pub(super) configured: Arc<Provider>,
    /// The cluster and how to reach it.
    pub endpoint: Arc<Cluster>,
    pub(super) key: PluginKey,
}

impl Target {
    /// A run for `profile`, whose cluster is `endpoint`. `provider` is `configured` with what the profile adds.
    pub fn new(
        profile: ProfileName,
        provider: Arc<Provider>,
        configured: Arc<Provider>,
        endpoint: Arc<Cluster>,
    ) -> Self {
        let key = PluginKey::of_profile(&provider, &profile, &endpoint);
        Self { profile, provider, configured, endpoint, key }
    }

    /// Whether the profile, the run and the cluster are the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
    }

    /// Whether the plugin runs in the same way for the same cluster, for any profile.
    pub fn is_same_run(&self, other: &Self) -> bool {
        let (run, others) = (&self.provider, &other.provider);
        run.name == others.name
            && run.args == others.args
            && run.env == others.env
            && self.endpoint == other.endpoint
    }
}

#[cfg(test)]
mod tests;
