//! The selection of credentials for `credbroker refresh` and `evict`.

use std::fmt;

use credbroker_client::{ClusterProfileRef, admin::Selector};
use credbroker_exec::Source;

/// Exactly one of these arguments.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct SelectionArgs {
    /// Select the credentials of this provider
    #[arg(value_name = "NAME")]
    pub(super) provider: Option<String>,
    /// Select the credentials for this cluster, as `credbroker clusters` lists it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(super) cluster_profile: Option<ClusterProfileRef>,
    /// Select the credential with this key, as `credbroker status` prints it
    #[arg(long)]
    key: Option<String>,
    /// Select all credentials
    #[arg(long)]
    all: bool,
}

impl SelectionArgs {
    pub(super) fn selector(&self) -> Selector {
        match (&self.provider, &self.cluster_profile, &self.key) {
            (Some(provider), _, _) => Selector::Provider(provider.clone()),
            (None, Some(profile), _) => Selector::ClusterProfile(profile.clone()),
            (None, None, Some(key)) => Selector::Key(key.clone()),
            (None, None, None) => Selector::All,
        }
    }
}

impl SelectionArgs {
    /// What a request names to get such a credential. `None`: nothing does.
    pub(super) fn source(&self) -> Option<Source> {
        let profile = self.cluster_profile.clone().map(Source::ClusterProfile);
        profile.or_else(|| Some(Source::Provider { name: self.provider.clone()?, definition: None }))
    }
}

impl fmt::Display for SelectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.provider, &self.cluster_profile, &self.key) {
            (Some(provider), _, _) => f.write_str(provider),
            (None, Some(profile), _) => write!(f, "ClusterProfile {profile}"),
            (None, None, Some(key)) => write!(f, "key {key}"),
            (None, None, None) => f.write_str("all providers"),
        }
    }
}
