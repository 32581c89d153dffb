//! Which credentials a command is about. Each command says in its help what it does with them.

use std::fmt;

use clap::ArgGroup;
use credbroker_client::{ClusterProfileRef, admin::Selector};
use credbroker_exec::Source;

/// A provider, or the one of a cluster.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SourceArgs {
    #[arg(value_name = "NAME", conflicts_with = "cluster_profile")]
    provider: Option<String>,
    /// Digest of the kubeconfig that defines the provider; needed if several define its name, and listed in that error
    #[arg(long, value_name = "DIGEST", requires = "provider")]
    definition: Option<String>,
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
}

/// The help of the definition, for commands that select what the broker holds.
pub(super) const HELD_DEFINITION: &str = "Digest of the kubeconfig that defines the provider, if several define the name: \
                                          `credbroker status -o json` lists them";

impl SourceArgs {
    /// What a request names. `None`: nothing is named.
    pub(super) fn source(&self) -> Option<Source> {
        let profile = self.cluster_profile.clone().map(Source::ClusterProfile);
        let definition = self.definition.clone();
        profile.or_else(|| Some(Source::Provider { name: self.provider.clone()?, definition }))
    }
}

/// All that the broker holds of `source`; without a definition those of all its definitions.
pub(super) fn held_of(source: Source) -> Selector {
    match source {
        Source::ClusterProfile(profile) => Selector::ClusterProfile(profile),
        Source::Provider { name, definition: None } => Selector::Provider(name),
        Source::Provider { name: provider, definition: Some(definition) } => {
            Selector::Definition { provider, definition }
        }
    }
}

/// What a command selects: exactly one of a source, a key, and all.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("selected").args(["provider", "cluster_profile", "key", "all"]).required(true))]
#[command(mut_arg("provider", |arg| arg.help("Select the credentials of this provider")))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Select the credentials for this cluster, as `credbroker clusters` lists it")))]
#[command(mut_arg("definition", |arg| arg.help(HELD_DEFINITION).display_order(3)))]
pub(super) struct SelectionArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Select the credential with this key, as `credbroker status` prints it
    #[arg(long)]
    key: Option<String>,
    /// Select all credentials
    #[arg(long)]
    all: bool,
}

impl SelectionArgs {
    pub(super) fn selector(&self) -> Selector {
        let key = || self.key.clone().map(Selector::Key);
        self.source.source().map(held_of).or_else(key).unwrap_or(Selector::All)
    }
}

impl fmt::Display for SelectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.source.source(), &self.key) {
            (Some(Source::Provider { name, .. }), _) => f.write_str(&name),
            (Some(profile), _) => profile.fmt(f),
            (None, Some(key)) => write!(f, "key {key}"),
            (None, None) => f.write_str("all providers"),
        }
    }
}
