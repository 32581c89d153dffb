//! What can be chosen for a provider.

/// How the broker uses the cluster that a caller of a provider sends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClusterInfo {
    /// The plugin receives the cluster, which is part of the key.
    #[default]
    FromCaller,
    /// The cluster must match one that the broker knows for this provider; the plugin receives the broker's value.
    Match,
}

/// Whether the broker verifies a suspected rejection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Verify {
    /// If the broker knows the cluster.
    #[default]
    Auto,
    /// Never.
    Never,
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
            Self::Strict => "strict",
            Self::Compatible => "compatible",
        }
    }

    /// The sandbox of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Strict, Self::Compatible].into_iter().find(|sandbox| sandbox.as_str() == name)
    }
}

/// Whether the arguments in a profile reach the plugin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ArgsPolicy {
    /// They do not.
    #[default]
    Ignore,
    /// They follow the provider's own.
    Append,
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
    /// `profileSourcedCLIArgsPolicy`.
    pub args: ArgsPolicy,
    /// `profileSourcedEnvVarsPolicy`.
    pub env: EnvPolicy,
}
