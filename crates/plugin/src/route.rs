//! How a provider and a request lead to one run.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    sync::{Arc, LazyLock},
};

use serde::de::IgnoredAny;

use super::{
    environment::{Origin, Session},
    error::ResolveError,
    file::PluginFile,
    key::{PluginKey, RunDigest},
    profile::ProfileName,
    provider::{Interactive, Provider},
    providers::Entry,
    variables::{Effect, effect, identity_variables, is_denied, may_select_identity},
};
use credbroker_credential::Cluster;
use credbroker_proto::Globs;

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

/// Everything that a run needs, resolved for one request. Equal keys mean equal runs.
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

/// Shows the names of variables, never their values.
impl fmt::Debug for PluginSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PluginSpec");
        shown.field("key", &self.key).field("provider", &self.provider.name);
        shown.field("profile", &self.target.as_ref().map(|target| &target.profile));
        shown.field("file", &self.file);
        shown.field("cluster", &self.cluster.as_ref().map(|cluster| &cluster.server));
        shown.field("caller_env", &self.caller_env.keys()).finish()
    }
}

impl PluginSpec {
    /// Version of the plugin's file that was found last; see [`PluginFile::version`]. Reads memory only.
    pub fn file_version(&self) -> u64 {
        self.file.version()
    }

    /// Cluster that the credential is for, if known: the ClusterProfile's endpoint, else what the plugin receives.
    pub fn endpoint(&self) -> Option<&Cluster> {
        let endpoint = self.target.as_ref().map(|target| &*target.endpoint);
        endpoint.or(self.cluster.as_deref())
    }

    /// Name of the plugin in messages: its executable, without arguments or environment.
    pub fn command(&self) -> Arc<str> {
        self.file.to_string().into()
    }

    /// The plugin's environment without `KUBERNETES_EXEC_INFO`. The stanza's values override those of `session` and of the
    /// caller, which override the inherited ones.
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
    /// Digest of the profile, the run and the cluster.
    pub(super) digest: RunDigest,
}

impl Target {
    /// A run of `provider` for `profile`, whose cluster is `endpoint`. `provider` is `configured` with what the profile
    /// adds.
    pub fn new(
        profile: ProfileName,
        provider: Arc<Provider>,
        configured: Arc<Provider>,
        endpoint: Arc<Cluster>,
    ) -> Self {
        let digest = RunDigest::of_target(&provider, &profile, &endpoint);
        Self { profile, provider, configured, endpoint, digest }
    }

    /// Whether the profile, the run and the cluster are the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
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

/// Whether the caller's variable `name` reaches the plugin. A variable that the stanza sets does not: the stanza's
/// value wins, and the caller's would only give equal runs different keys.
fn reaches(name: &str, provider: &Provider) -> bool {
    provider.caller_env.matches(name) && !is_denied(name) && !is_set(name, provider)
}

/// Checks the variables of a caller. One that the provider does not take is refused only if it may select another
/// identity.
fn check(env: &BTreeMap<String, String>, origin: Origin, provider: &Provider) -> Result<(), ResolveError> {
    for (name, value) in env {
        if !provider.caller_env.matches(name) {
            if provider.refuses_other_identities && conflicts(name, value, provider) {
                return Err(conflict(name, provider));
            }
        } else if is_set(name, provider) {
            // The stanza's value reaches the plugin.
        } else if !is_possible(name, value) {
            let (provider, variable) = (Arc::clone(&provider.name), name.clone());
            return Err(ResolveError::InvalidVariable { provider, variable });
        } else if !value.is_empty() && !is_allowed(name, origin, provider) {
            // An empty value would name no file or program.
            return Err(not_allowed(name, provider));
        }
    }
    Ok(())
}

/// Whether a caller at `origin` may send the variable, which `callerEnv` names.
fn is_allowed(name: &str, origin: Origin, provider: &Provider) -> bool {
    match effect(name) {
        Effect::Program => false,
        // The variable reaches no plugin.
        _ if is_denied(name) => true,
        Effect::Place => origin == Origin::Beside,
        Effect::Unknown => origin == Origin::Beside || provider.caller_env.lists(name),
        Effect::Identity | Effect::Value => true,
    }
}

/// Whether the kernel can give a process this variable.
fn is_possible(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Whether the caller selects an identity with a value that the plugin would not receive.
fn conflicts(name: &str, value: &str, provider: &Provider) -> bool {
    selects_identity(name) && run_value(name, provider).unwrap_or_default() != OsStr::new(value)
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
fn run_value<'a>(name: &str, provider: &'a Provider) -> Option<&'a OsStr> {
    let set = provider.env.iter().rev().find(|(set, _)| set == name);
    set.map(|(_, value)| OsStr::new(value)).or_else(|| provider.inherited.get(name))
}

fn is_set(name: &str, provider: &Provider) -> bool {
    provider.env.iter().any(|(set, _)| set == name)
}

fn conflict(name: &str, provider: &Provider) -> ResolveError {
    let runs_with = run_value(name, provider).is_some_and(|value| !value.is_empty());
    let (provider, variable) = (Arc::clone(&provider.name), name.to_owned());
    ResolveError::IdentityConflict { provider, variable, runs_with }
}

/// The error for a variable that `callerEnv` names and that the caller may not send.
fn not_allowed(name: &str, provider: &Provider) -> ResolveError {
    let (danger, remedy) = match effect(name) {
        Effect::Program => ("it can make the plugin run another program", ""),
        Effect::Place => (
            "it names a file or a service, which only a process of the broker's own user, mount namespace and PID namespace may choose",
            "",
        ),
        Effect::Unknown | Effect::Identity | Effect::Value => (
            "the broker does not know what it can change, and the caller is not a process of the broker's own user, mount namespace and PID namespace",
            ", or name it in `callerEnv` without a `*`",
        ),
    };
    let (provider, variable) = (Arc::clone(&provider.name), name.to_owned());
    ResolveError::VariableNotAllowed { provider, variable, danger, remedy }
}

#[cfg(test)]
mod tests;
