//! How a provider and a request lead to one run.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    sync::{Arc, LazyLock},
};

use serde::de::IgnoredAny;

use super::{
    environment::Origin,
    error::{ProviderProblem, ResolveError},
    key::PluginKey,
    provider::{Interactive, Provider},
    providers::Entry,
    spec::{PluginSpec, Target},
    variables::{Effect, effect, identity_variables, is_denied, may_select_identity},
};
use credbroker_credential::Cluster;
use credbroker_proto::Globs;

/// The run that a request leads to. The variables of the caller are passed to each method.
#[derive(Debug)]
pub struct Route<'a> {
    entry: &'a Entry,
    /// The cluster that the plugin receives, if the run is not for a ClusterProfile.
    cluster: Option<&'a Cluster>,
    /// The ClusterProfile of the run, whose endpoint the plugin receives if the provider wants it.
    target: Option<Arc<Target>>,
}

impl Entry {
    /// The provider as configured, for this cluster. If the provider wants a cluster and there is none, the plugin receives
    /// the only one that the kubeconfig uses this user for.
    pub fn of_provider<'a>(&'a self, cluster: Option<&'a Cluster>) -> Result<Route<'a>, ResolveError> {
        let provider = &self.provider;
        let cluster = match (cluster, provider.clusters.as_slice()) {
            _ if !provider.provide_cluster_info => None,
            (Some(named), _) if named.server.is_empty() => {
                return Err(provider.error(ProviderProblem::ClusterServer));
            }
            (Some(only), _) | (None, [only]) => Some(only),
            (None, several) => return Err(provider.error(ProviderProblem::NoCluster(several.len()))),
        };
        Ok(Route { entry: self, cluster, target: None })
    }

    /// This provider for the ClusterProfile of `target`.
    pub fn of_target(&self, target: Arc<Target>) -> Result<Route<'_>, ResolveError> {
        match self.provider.interactive {
            // There is no person whose terminal could be used.
            Interactive::Always => Err(self.provider.error(ProviderProblem::NeedsTerminal)),
            _ => Ok(Route { entry: self, cluster: None, target: Some(target) }),
        }
    }
}

impl Route<'_> {
    /// Checks whether a caller at `origin` may send these variables. Every request needs this check: a caller with more
    /// rights may have requested the credential in the cache.
    pub fn check(&self, env: &BTreeMap<String, String>, origin: Origin) -> Result<(), ResolveError> {
        let provider = self.provider();
        env.iter()
            .try_for_each(|(name, value)| check(name, value, origin, provider))
            .map_err(|problem| provider.error(problem))
    }

    /// The key of the run for a caller that sent these variables.
    pub fn key(&self, env: &BTreeMap<String, String>) -> PluginKey {
        let provider = self.provider();
        let caller_env = env.iter().filter(|(name, _)| reaches(name, provider));
        // The key of a target has the endpoint, whether the plugin receives it or not.
        self.target.as_ref().map_or(self.entry.key, |target| target.key).with(self.cluster, caller_env)
    }

    /// The run for a caller that sent these variables.
    pub fn spec(self, mut env: BTreeMap<String, String>) -> Result<PluginSpec, ResolveError> {
        let provider = Arc::clone(self.provider());
        self.cluster.map_or(Ok(()), check_config).map_err(|problem| provider.error(problem))?;
        let key = self.key(&env);
        env.retain(|name, _| reaches(name, &provider));
        let endpoint = self.target.as_ref().filter(|_| provider.provide_cluster_info);
        let endpoint = endpoint.map(|target| Arc::clone(&target.endpoint));
        let cluster = endpoint.or_else(|| self.cluster.cloned().map(Arc::new));
        let file = Arc::clone(&self.entry.file);
        Ok(PluginSpec { key, provider, file, cluster, caller_env: env, target: self.target })
    }

    /// The provider of the run: a profile may add to the configured one.
    fn provider(&self) -> &Arc<Provider> {
        self.target.as_ref().map_or(&self.entry.provider, |target| &target.provider)
    }
}

/// Checks that the exec extension is JSON: the plugin could not read it otherwise.
fn check_config(cluster: &Cluster) -> Result<(), ProviderProblem> {
    if cluster.config.is_empty() {
        return Ok(());
    }
    let read = serde_json::from_slice::<IgnoredAny>(&cluster.config);
    read.map(drop).map_err(|error| ProviderProblem::ClusterConfig(error.line(), error.column()))
}

/// Whether the caller's variable `name` reaches the plugin. A variable that the stanza sets does not: the stanza's
/// value wins, and the caller's would only give equal runs different keys.
pub(super) fn reaches(name: &str, provider: &Provider) -> bool {
    provider.caller_env.matches(name) && !is_denied(name) && !is_set(name, provider)
}

/// Checks a variable of a caller. One that the provider does not take is refused only if it may select another identity.
fn check(name: &str, value: &str, origin: Origin, provider: &Provider) -> Result<(), ProviderProblem> {
    if !provider.caller_env.matches(name) {
        // The plugin would not receive the value.
        let run_value = || run_value(name, provider).unwrap_or_default();
        if provider.refuses_other_identities && selects_identity(name) && run_value() != OsStr::new(value) {
            return Err(ProviderProblem::IdentityConflict(name.to_owned(), !run_value().is_empty()));
        }
    } else if is_set(name, provider) {
        // The stanza's value reaches the plugin.
    } else if !is_possible(name, value) {
        return Err(ProviderProblem::InvalidVariable(name.to_owned()));
    } else if !value.is_empty()
        && let Some((danger, remedy)) = danger(name, origin, provider)
    {
        // An empty value would name no file or program.
        return Err(ProviderProblem::VariableNotAllowed(name.to_owned(), danger, remedy));
    }
    Ok(())
}

/// Why a caller at `origin` may not send the variable, which `callerEnv` names, and a further remedy.
fn danger(name: &str, origin: Origin, provider: &Provider) -> Option<(&'static str, &'static str)> {
    match effect(name) {
        Effect::Program => Some(("it can make the plugin run another program", "")),
        // The variable reaches no plugin.
        _ if is_denied(name) || origin == Origin::Beside => None,
        Effect::Place => Some((
            "it names a file or a service, which only a process of the broker's own user, mount namespace and PID namespace may choose",
            "",
        )),
        Effect::Unknown if !provider.caller_env.lists(name) => Some((
            "the broker does not know what it can change, and the caller is not a process of the broker's own user, mount namespace and PID namespace",
            ", or name it in `callerEnv` without a `*`",
        )),
        Effect::Unknown | Effect::Identity | Effect::Value => None,
    }
}

/// Whether the kernel can give a process this variable.
fn is_possible(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Whether a caller may select an identity with the variable. One that is in no table counts if it looks so, and if callers
/// do not send it by default: this caller chose to.
fn selects_identity(name: &str) -> bool {
    static SENT: LazyLock<Globs> = LazyLock::new(identity_variables);
    match effect(name) {
        Effect::Identity => true,
        Effect::Unknown => !SENT.matches(name) && may_select_identity(name),
        Effect::Program | Effect::Place | Effect::Value => false,
    }
}

/// The value that the plugin would receive; `None`: unset.
pub(super) fn run_value<'a>(name: &str, provider: &'a Provider) -> Option<&'a OsStr> {
    let set = provider.env.iter().rev().find(|(set, _)| set == name);
    set.map(|(_, value)| OsStr::new(value)).or_else(|| provider.inherited.get(name))
}

fn is_set(name: &str, provider: &Provider) -> bool {
    provider.env.iter().any(|(set, _)| set == name)
}

#[cfg(test)]
mod tests;
