//! What a profile leads to.

use std::sync::Arc;

use super::{
    ClusterProfile, ProfileError, ProfileName, Provider, Rules, Skipped,
    cluster_profile::{Resolution, resolve},
    key::RunDigest,
};
use crate::credential::Cluster;

/// One profile as it is now.
#[derive(Debug)]
pub struct Known {
    /// What the hub says.
    pub profile: ClusterProfile,
    /// What it leads to.
    pub outcome: Result<Arc<Target>, ProfileError>,
    /// Providers that were not chosen.
    pub skipped: Vec<Skipped>,
    /// What is suspicious but stops nothing.
    pub warnings: Vec<String>,
    /// Of the fleet, when this was written: grows with every change. Zero before.
    pub revision: u64,
}

/// What a profile leads to: which plugin runs how, and where its credential is for.
#[derive(Debug)]
pub struct Target {
    /// The profile.
    pub profile: ProfileName,
    /// The plugin, with what the profile adds.
    pub provider: Arc<Provider>,
    /// Where the cluster is.
    pub endpoint: Arc<Cluster>,
    /// Of all of these.
    pub(super) digest: RunDigest,
}

impl Known {
    /// `profile`, resolved against `configured`.
    pub(super) fn of(profile: ClusterProfile, configured: &[Arc<Provider>], rules: Rules) -> Self {
        let (resolution, skipped) = resolve(&profile, configured, rules);
        let (outcome, warnings) = match resolution {
            Ok(Resolution { provider, endpoint, warnings }) => {
                let digest = RunDigest::of_target(&provider, &profile.name, &endpoint);
                let target = Target { profile: profile.name.clone(), provider, endpoint, digest };
                (Ok(Arc::new(target)), warnings)
            }
            Err(error) => (Err(error), Vec::new()),
        };
        Self { profile, outcome, skipped, warnings, revision: 0 }
    }

    /// What tells one run for it from another; `None`: there is none.
    pub(super) fn digest(&self) -> Option<RunDigest> {
        self.outcome.as_ref().ok().map(|target| target.digest)
    }
}

impl Target {
    /// Whether it is the same profile, leading to the same run for the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Whether the plugin would run in the same way for the same place, for whichever profile.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        let (run, others) = (&self.provider, &other.provider);
        run.name == others.name
            && run.args == others.args
            && run.env == others.env
            && self.endpoint == other.endpoint
    }
}
