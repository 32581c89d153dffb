//! The selection of credentials for `credbroker explain`, `refresh` and `evict`.

use std::fmt;

use credbroker_client::{ClusterProfileRef, admin::Selector};
use credbroker_exec::Source;

/// What a command selects.
#[derive(Debug, clap::Args)]
pub(super) struct SelectionArgs {
    #[command(flatten)]
    one: OneArg,
    #[command(flatten)]
    definition: DefinitionArg,
}

/// Exactly one of these arguments.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct OneArg {
    /// Select the credentials of this provider
    #[arg(value_name = "NAME")]
    provider: Option<String>,
    /// Select the credentials for this cluster, as `credbroker clusters` lists it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
    /// Select the credential with this key, as `credbroker status` prints it
    #[arg(long)]
    key: Option<String>,
    /// Select all credentials
    #[arg(long)]
    all: bool,
}

/// One definition of a provider that several kubeconfigs define.
#[derive(Debug, clap::Args)]
pub(super) struct DefinitionArg {
    /// Digest of the kubeconfig that defines the provider, if several define the name: `credbroker status -o json` lists
    /// them
    #[arg(long, value_name = "DIGEST", requires = "provider")]
    pub(super) definition: Option<String>,
}

impl DefinitionArg {
    /// Selects the credentials of `provider` with this definition; without one those of all its definitions.
    pub(super) fn selector(&self, provider: &str) -> Selector {
        let provider = provider.to_owned();
        match &self.definition {
            Some(definition) => Selector::Definition { provider, definition: definition.clone() },
            None => Selector::Provider(provider),
        }
    }
}

impl SelectionArgs {
    pub(super) fn selector(&self) -> Selector {
        match (&self.one.provider, &self.one.cluster_profile, &self.one.key) {
            (Some(provider), _, _) => self.definition.selector(provider),
            (None, Some(profile), _) => Selector::ClusterProfile(profile.clone()),
            (None, None, Some(key)) => Selector::Key(key.clone()),
            (None, None, None) => Selector::All,
        }
    }
}

impl SelectionArgs {
    /// What a request names to get such a credential. `None`: nothing does.
    pub(super) fn source(&self) -> Option<Source> {
        let profile = self.one.cluster_profile.clone().map(Source::ClusterProfile);
        let definition = self.definition.definition.clone();
        profile.or_else(|| Some(Source::Provider { name: self.one.provider.clone()?, definition }))
    }
}

impl fmt::Display for SelectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.one.provider, &self.one.cluster_profile, &self.one.key) {
            (Some(provider), _, _) => f.write_str(provider),
            (None, Some(profile), _) => write!(f, "ClusterProfile {profile}"),
            (None, None, Some(key)) => write!(f, "key {key}"),
            (None, None, None) => f.write_str("all providers"),
        }
    }
}
