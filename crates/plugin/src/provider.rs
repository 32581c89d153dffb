//! Providers: the configuration of a plugin, which no request changes.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    definition::Definition,
    environment::Environment,
    error::{ProviderProblem, ResolveError},
    file::{Command, FoundFile, PluginPolicy, Refusal},
    stored::StoredCredential,
};
use credbroker_credential::{ApiVersion, Cluster, LifetimeLimits, Sha256, text::sanitize};
use credbroker_proto::Globs;

/// One configured plugin, validated and immutable. `Debug` shows no argument and no variable: they may be secrets.
#[derive(Clone, derive_more::Debug, PartialEq)]
#[debug("Provider({name}, {command})")]
pub struct Provider {
    /// Name that callers use.
    pub name: Arc<str>,
    /// The kubeconfig that defines the provider; another file may define another provider of that name. `None`: the
    /// broker's own configuration defines it, and no other provider has its name.
    pub definition: Option<Definition>,
    /// The credential, if the kubeconfig has it. Then there is no plugin, and `command` is the path of the kubeconfig.
    pub stored: Option<StoredCredential>,
    /// Command to start.
    pub command: Command,
    /// Arguments, verbatim: no shell, no expansion.
    pub args: Vec<String>,
    /// The stanza's `env`, in order; a later entry wins. It overrides all other sources.
    pub env: Vec<(String, String)>,
    /// Variables that the plugin inherits from the broker: the standard list and `passEnv`, without `callerEnv`.
    pub inherited: Arc<Environment>,
    /// Names of the caller's variables that reach the plugin.
    pub caller_env: Globs,
    /// Whether to refuse a caller that selects, by a variable outside of `caller_env`, another identity than the plugin's.
    pub refuses_other_identities: bool,
    /// Files that select the account, besides those that the broker knows for this plugin.
    pub identity_files: Vec<PathBuf>,
    /// Version of the ExecCredential API that the plugin speaks.
    pub api_version: ApiVersion,
    /// Whether the plugin receives its cluster.
    pub provide_cluster_info: bool,
    /// Whether the plugin reads from a terminal, which a broker does not have.
    pub interactive: Interactive,
    /// Installation hint for people when the plugin is not installed; sanitized.
    pub install_hint: Option<String>,
    /// Issuer whose budget the runs share.
    pub issuer: Arc<Issuer>,
    /// How far a run is confined.
    pub sandbox: Sandbox,
    /// SHA-256 that the plugin's file must have.
    pub sha256: Option<Sha256>,
    /// Which plugins may run.
    pub policy: Arc<PluginPolicy>,
    /// Time limit of a run.
    pub timeout: Duration,
    /// Time limit of a login that a user attends.
    pub interactive_timeout: Duration,
    /// Bounds on the lifetime of each credential.
    pub lifetime: LifetimeLimits,
    /// The clusters of the contexts that use this user: for callers that send none, and to verify credentials.
    pub clusters: Vec<Cluster>,
    /// How the broker uses the cluster that a caller sends.
    pub cluster_info: ClusterInfo,
    /// Whether the broker asks an API server, if it knows the cluster, about a credential that seems to be rejected.
    pub verify: bool,
    /// What the provider takes from ClusterProfiles. `None`: a user of a kubeconfig, not an access provider.
    pub profile_sourced: Option<ProfileSourced>,
    /// Names of the variables that ClusterProfiles may set, if `profile_sourced` takes any.
    pub profile_env: Globs,
    /// Whether it was retired, and whether its credentials are shared.
    pub state: ProviderState,
}

impl Provider {
    /// Why this provider does not start its plugin; `file` is the one that was found for its command.
    pub fn refusal(&self, file: Option<&FoundFile>) -> Option<Refusal> {
        let policy = self.policy.refusal(&self.command, file);
        // The compatible sandbox starts a plugin that others can replace.
        let is_strict = self.sandbox == Sandbox::Strict;
        let counts =
            |refusal: &Refusal| is_strict || !matches!(refusal, Refusal::Owner(..) | Refusal::Writable(..));
        policy.or_else(|| file?.refusal.clone().filter(counts))
    }

    /// The end of the message that its plugin is not installed: where it was looked up, and the `installHint`, sanitized.
    pub fn not_installed(&self) -> String {
        let place = match &self.command {
            Command::Name(_) => {
                let path = self.inherited.set("PATH");
                let shown = path.map_or_else(|| "which is empty".into(), OsStr::to_string_lossy);
                format!(" in the broker's PATH, {shown}")
            }
            Command::Path(_) => String::new(),
        };
        let hint = self.install_hint.as_ref().map_or_else(String::new, |hint| format!(". {hint}"));
        sanitize(&(place + &hint))
    }

    /// The error for a request that leads to no run of it.
    pub fn error(&self, problem: ProviderProblem) -> ResolveError {
        ResolveError::Provider(Arc::clone(&self.name), problem)
    }

    /// Whether a newer configuration has this provider as it is: credentials that one issued are the other's.
    ///
    /// The budget of the issuer is not compared, because it changes no credential, and of the clusters of the kubeconfig's
    /// contexts only those that a run may have received: a new context must not cause a new login.
    pub fn is_same_definition(&self, newer: &Self) -> bool {
        let Self { issuer, clusters, state, .. } = newer.clone();
        let alike = Self { issuer, clusters, state, ..self.clone() };
        alike == *newer
            && self.issuer.name == newer.issuer.name
            && self.received_clusters().iter().all(|cluster| newer.received_clusters().contains(cluster))
    }

    /// The clusters of the kubeconfig's contexts that the plugin may receive.
    fn received_clusters(&self) -> &[Cluster] {
        match (self.provide_cluster_info, self.cluster_info, self.clusters.as_slice()) {
            (true, ClusterInfo::Match, known) | (true, ClusterInfo::FromCaller, known @ [_]) => known,
            _ => &[],
        }
    }

    /// Whether both are one provider: they have the same name, and their definitions have one file and name.
    pub(super) fn has_identity_of(&self, other: &Self) -> bool {
        let [own, others] =
            [self, other].map(|provider| provider.definition.as_ref().map(|known| &known.identity));
        self.name == other.name && own == others
    }
}

/// How the broker uses the cluster that a caller of a provider sends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClusterInfo {
    /// The plugin receives the cluster, which is part of the key.
    #[default]
    FromCaller,
    /// The cluster must match one that the broker knows for this provider; the plugin receives the broker's value.
    Match,
}

/// `interactiveMode` of a stanza: whether the plugin reads from a terminal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Interactive {
    /// It never does.
    Never,
    /// It does if it has one and needs it.
    #[default]
    IfAvailable,
    /// It does not work without one.
    Always,
}

/// How far a plugin run is confined. Each run has its own session, limits and process tree; these differ.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sandbox {
    /// It gains no privileges by setuid programs, and all of its processes end with it.
    #[default]
    Strict,
    /// Processes that it leaves behind outlive it if it succeeds, such as a browser or an agent.
    Compatible,
}

impl Sandbox {
    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Compatible => "Compatible",
        }
    }

    /// The sandbox of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Strict, Self::Compatible].into_iter().find(|sandbox| sandbox.as_str() == name)
    }
}

/// Whether the variables in a profile reach the plugin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EnvPolicy {
    /// They do not.
    #[default]
    Ignore,
    /// Those that the provider does not set.
    AppendIfNotExists,
    /// All, even if the provider sets another value.
    Replace,
}

/// What a provider takes from profiles.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProfileSourced {
    /// Whether the arguments in a profile follow the provider's own: `profileSourcedCLIArgsPolicy`.
    pub args: bool,
    /// `profileSourcedEnvVarsPolicy`.
    pub env: EnvPolicy,
}

/// Why a provider is no longer used.
#[derive(Clone, Copy, Debug, derive_more::Display, Eq, PartialEq)]
pub enum Retirement {
    /// Another definition has its name, or its kubeconfig defines it in another way.
    #[display("changed")]
    Changed,
    /// The configuration no longer has it.
    #[display("was removed")]
    Removed,
}

/// What changes of a provider while it is used. Copies of the provider share it, also those that ClusterProfiles have added
/// to, so that one store retires all of them: a request that was resolved before cannot enter the cache afterwards.
#[derive(Clone, Debug, Default)]
pub struct ProviderState(Arc<(OnceLock<Retirement>, AtomicBool, Mutex<BTreeSet<String>>)>);

impl ProviderState {
    /// Why the provider is no longer used; `None`: it is.
    pub fn retirement(&self) -> Option<Retirement> {
        self.0.0.get().copied()
    }

    /// Retires the provider. It is never used again; a later definition has its own state.
    pub(super) fn retire(&self, why: Retirement) {
        // A retired provider stays so, for the first reason.
        let _is_retired = self.0.0.set(why);
    }

    /// Whether rules give its credentials to other users than the broker's own and root.
    pub fn is_shared(&self) -> bool {
        self.0.1.load(Ordering::Acquire)
    }

    /// Sets whether rules give its credentials to others.
    pub fn set_shared(&self, is_shared: bool) {
        self.0.1.store(is_shared, Ordering::Release);
    }

    /// Whether a variable of callers that the plugin does not get is noticed for the first time. Few of them are.
    pub(super) fn notices(&self, variable: &str) -> bool {
        const MOST: usize = 16;
        let mut noticed = self.0.2.lock().unwrap_or_else(PoisonError::into_inner);
        noticed.len() < MOST && !noticed.contains(variable) && noticed.insert(variable.to_owned())
    }
}

impl PartialEq for ProviderState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The service that issues the credentials of one or more providers, such as a cloud account. Their runs share its budget.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuer {
    /// Name of the issuer: the provider's `issuer`, else the provider's own name, with the file of a kubeconfig's user.
    pub name: Arc<str>,
    /// Maximum number of runs that start in any second.
    pub runs_per_second: NonZeroUsize,
    /// Maximum number of runs at a time.
    pub concurrency: NonZeroUsize,
}

#[cfg(test)]
mod tests;
