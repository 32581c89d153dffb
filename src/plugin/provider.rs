//! A configured plugin: everything about it that no request changes.

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use credbroker_proto::Globs;

use super::{command::Command, definition::Definition, environment::Environment};
use crate::credential::{ApiVersion, Cluster, LifetimeLimits};

/// One configured plugin, checked. Immutable: a request is resolved into a new value.
#[derive(Clone)]
pub struct Provider {
    /// The name callers ask for.
    pub name: Arc<str>,
    /// Where a kubeconfig defines it: another file may define another provider of that name. `None`: the broker's own
    /// configuration does, and no other provider has its name.
    pub definition: Option<Definition>,
    /// What to start.
    pub command: Command,
    /// Its arguments, verbatim: no shell, no expansion.
    pub args: Vec<String>,
    /// The stanza's `env`, in order; a later entry wins. Wins over everything else.
    pub env: Vec<(String, String)>,
    /// What the plugin gets of the broker's own environment: the standard list and `passEnv`, without what
    /// `callerEnv` names.
    pub inherited: Arc<Environment>,
    /// Which of the caller's variables reach the plugin.
    pub caller_env: Globs,
    /// A caller that selects an identity by name with a variable outside of `caller_env` is refused, unless the plugin
    /// would receive the same value.
    pub refuses_other_identities: bool,
    /// The version the plugin speaks.
    pub api_version: ApiVersion,
    /// Whether the plugin receives its cluster.
    pub provide_cluster_info: bool,
    /// `interactiveMode: Always`: it must read from a terminal, which a broker has not.
    pub needs_terminal: bool,
    /// What to tell a person when the plugin is not installed; sanitised.
    pub install_hint: Option<String>,
    /// Whose budget its runs share.
    pub issuer: Arc<Issuer>,
    /// A run that takes longer is ended.
    pub timeout: Duration,
    /// The same for a login that a person attends.
    pub interactive_timeout: Duration,
    /// Bounds on any lifetime.
    pub lifetime: LifetimeLimits,
    /// The distinct clusters of the kubeconfig contexts that use this user: for callers that send none, and to ask
    /// whether a credential is accepted.
    pub clusters: Vec<Cluster>,
    /// What a caller may say about the cluster.
    pub cluster_info: ClusterInfo,
    /// Whether an API server is asked about a credential that seems to be rejected.
    pub verify: Verify,
    /// What it takes of ClusterProfiles. `None`: it is a user of a kubeconfig, not an access provider.
    pub profile_sourced: Option<ProfileSourced>,
}

/// What comes of the cluster that a caller of a provider sends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClusterInfo {
    /// The plugin receives it, and it is part of the key.
    #[default]
    FromCaller,
    /// It must be one that the broker knows for this provider; the plugin receives the broker's own value.
    Match,
}

/// Whether a suspected rejection is verified.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Verify {
    /// Wherever the broker knows the cluster.
    #[default]
    Auto,
    /// The API server is never asked.
    Never,
}

/// Whether the arguments in a profile reach the plugin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ArgsPolicy {
    /// They do not.
    #[default]
    Ignore,
    /// After the provider's own.
    Append,
}

/// Whether the variables in a profile reach the plugin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EnvPolicy {
    /// They do not.
    #[default]
    Ignore,
    /// Those that the provider does not set itself.
    AppendIfNotExists,
    /// All, also where the provider sets another value.
    Replace,
}

/// What a provider takes of profiles.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProfileSourced {
    /// `profileSourcedCLIArgsPolicy`.
    pub args: ArgsPolicy,
    /// `profileSourcedEnvVarsPolicy`.
    pub env: EnvPolicy,
}

/// Names of variables, never their values; how many arguments: they may be secrets too.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("Provider");
        shown.field("name", &self.name).field("command", &self.command).field("args", &self.args.len());
        shown.field("env", &env).finish_non_exhaustive()
    }
}

/// The service that issues the credentials of one or more providers: an identity provider, a cloud account. All runs of
/// its providers share its budget.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuer {
    /// Its name: the provider's `issuer`, else the provider's own name.
    pub name: Arc<str>,
    /// Runs that are started in any second.
    pub runs_per_second: NonZeroUsize,
    /// Runs at a time.
    pub concurrency: NonZeroUsize,
}

impl Issuer {
    /// An issuer with the default rate, 10 runs in a second.
    pub fn new(name: impl Into<Arc<str>>, concurrency: NonZeroUsize) -> Self {
        let runs_per_second = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN);
        Self { name: name.into(), runs_per_second, concurrency }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// More runs than any test has.
    const MANY: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

    /// The least there is to a provider.
    pub(crate) fn provider(name: &str, command: Command) -> Provider {
        Provider {
            name: name.into(),
            definition: None,
            command,
            args: Vec::new(),
            env: Vec::new(),
            inherited: Arc::default(),
            caller_env: Globs::default(),
            refuses_other_identities: true,
            api_version: ApiVersion::V1,
            provide_cluster_info: false,
            needs_terminal: false,
            install_hint: None,
            issuer: Arc::new(Issuer { name: name.into(), runs_per_second: MANY, concurrency: MANY }),
            timeout: Duration::from_secs(30),
            interactive_timeout: Duration::from_secs(5 * 60),
            lifetime: LifetimeLimits { max_age: None, unknown_expiry_max_age: Duration::from_secs(10 * 60) },
            clusters: Vec::new(),
            cluster_info: ClusterInfo::FromCaller,
            verify: Verify::Auto,
            profile_sourced: Some(ProfileSourced::default()),
        }
    }

    #[test]
    fn debug_shows_no_values_and_no_arguments() {
        let env = vec![("NAME".to_owned(), "canary".to_owned())];
        let args = vec!["--secret=canary".to_owned()];
        let provider = Provider { args, env, ..provider("p", Command::Name("x".into())) };
        let shown = format!("{provider:?}");
        assert!(shown.contains("NAME") && !shown.contains("canary"), "{shown}");
    }
}
