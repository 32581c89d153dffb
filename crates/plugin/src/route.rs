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
    variables::{Effect, effect, identity_variables, is_denied, may_select_identity, selects_account},
};
use credbroker_credential::Cluster;
use credbroker_proto::Globs;

/// The variables that a caller sent. `Debug` shows names only.
#[derive(Clone, Copy, derive_more::Debug)]
#[debug("{:?}", env.keys())]
pub struct Sent<'a> {
    /// All of them.
    pub env: &'a BTreeMap<String, String>,
    /// The names of those that it sent only because these look like the name of an account, sorted.
    pub by_name: &'a [String],
    /// Where the caller runs.
    pub origin: Origin,
}

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
            // There is no user whose terminal could be used.
            Interactive::Always => Err(self.provider.error(ProviderProblem::NeedsTerminal)),
            _ => Ok(Route { entry: self, cluster: None, target: Some(target) }),
        }
    }
}

impl Route<'_> {
    /// Checks whether a caller may send these variables. Every request needs this check: a caller with more rights may have
    /// requested the credential in the cache. `warn` gets what does not make it fail, each variable of a provider once.
    pub fn check(&self, sent: Sent<'_>, warn: impl Fn(&ResolveError)) -> Result<(), ResolveError> {
        let provider = self.provider();
        sent.env.iter().try_for_each(|(name, value)| {
            let Err(problem) = check(name, value, sent, provider) else { return Ok(()) };
            let error = provider.error(problem);
            if !sent.is_by_name(name) {
                return Err(error);
            }
            if provider.state.notices(name) {
                warn(&error);
            }
            Ok(())
        })
    }

    /// The key of the run for a caller that sent these variables.
    pub fn key(&self, sent: Sent<'_>) -> PluginKey {
        let caller_env = sent.reaching(self.provider());
        // The key of a target has the endpoint, whether the plugin receives it or not.
        self.target.as_ref().map_or(self.entry.key, |target| target.key).with(self.cluster, caller_env)
    }

    /// The run for a caller that sent these variables.
    pub fn spec(self, sent: Sent<'_>) -> Result<PluginSpec, ResolveError> {
        let provider = Arc::clone(self.provider());
        self.cluster.map_or(Ok(()), check_config).map_err(|problem| provider.error(problem))?;
        let key = self.key(sent);
        let caller_env =
            sent.reaching(&provider).map(|(name, value)| (name.clone(), value.clone())).collect();
        let endpoint = self.target.as_ref().filter(|_| provider.provide_cluster_info);
        let endpoint = endpoint.map(|target| Arc::clone(&target.endpoint));
        let cluster = endpoint.or_else(|| self.cluster.cloned().map(Arc::new));
        let file = Arc::clone(&self.entry.file);
        Ok(PluginSpec { key, provider, file, cluster, caller_env, target: self.target })
    }

    /// The provider of the run: a profile may add to the configured one.
    fn provider(&self) -> &Arc<Provider> {
        self.target.as_ref().map_or(&self.entry.provider, |target| &target.provider)
    }
}

impl PluginSpec {
    /// Whether a caller with these variables gets this credential for the same cluster.
    pub fn is_of(&self, sent: Sent<'_>) -> bool {
        let is_refused = |(name, value): (&String, &String)| {
            !sent.is_by_name(name) && check(name, value, sent, &self.provider).is_err()
        };
        sent.reaching(&self.provider).eq(&self.caller_env) && !sent.env.iter().any(is_refused)
    }
}

impl<'a> Sent<'a> {
    /// Those that reach the plugin of `provider`.
    fn reaching(self, provider: &Provider) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.env.iter().filter(move |(name, _)| reaches(name, self, provider))
    }

    fn is_by_name(self, name: &str) -> bool {
        self.by_name.binary_search_by(|sent| sent.as_str().cmp(name)).is_ok()
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
pub(super) fn reaches(name: &str, sent: Sent<'_>, provider: &Provider) -> bool {
    provider.takes(name, sent.is_by_name(name)) && !is_denied(name) && !is_set(name, provider)
}

impl Provider {
    /// Whether it takes the variable from callers. Users of a kubeconfig take each account. What is sent because of its name
    /// must never be refused, so it is taken only if that is allowed to all callers.
    pub fn takes(&self, name: &str, is_by_name: bool) -> bool {
        let is_taken = self.caller_env.matches(name) || takes_account(name, self);
        // Without a plugin there is nothing that could use it.
        self.stored.is_none() && is_taken && !(is_by_name && danger(name, Origin::Elsewhere, self).is_some())
    }
}

fn takes_account(name: &str, provider: &Provider) -> bool {
    provider.definition.is_some() && selects_account(name)
}

/// Checks a variable of a caller. One that the provider does not take is refused only if it may select another identity.
fn check(name: &str, value: &str, sent: Sent<'_>, provider: &Provider) -> Result<(), ProviderProblem> {
    let is_by_name = sent.is_by_name(name);
    if !provider.takes(name, is_by_name) {
        // The plugin would not receive the value.
        let run_value = || run_value(name, provider).unwrap_or_default();
        let selects = if is_by_name { selects_account } else { selects_identity };
        if provider.refuses_other_identities && selects(name) && run_value() != OsStr::new(value) {
            return Err(ProviderProblem::IdentityConflict(name.to_owned(), !run_value().is_empty()));
        }
    } else if is_set(name, provider) {
        // The stanza's value reaches the plugin.
    } else if !is_possible(name, value) {
        return Err(ProviderProblem::InvalidVariable(name.to_owned()));
    } else if !value.is_empty()
        && let Some((danger, remedy)) = danger(name, sent.origin, provider)
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
        Effect::Unknown if !provider.caller_env.lists(name) && !takes_account(name, provider) => Some((
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
