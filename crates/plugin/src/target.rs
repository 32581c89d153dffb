//! A run for a ClusterProfile.

use std::sync::Arc;

use super::{key::RunDigest, profile::ProfileName, provider::Provider};
use credbroker_credential::Cluster;

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
