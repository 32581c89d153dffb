//! A ClusterProfile that was read, and its target.

use std::sync::Arc;

use credbroker_plugin::cluster_profile::{ClusterProfile, EndpointRules, Resolution, Skipped, resolve};
use credbroker_plugin::{ProfileError, Provider, Target};

/// A ClusterProfile that was read and resolved.
#[derive(Debug)]
pub struct KnownProfile {
    /// The object, as the hub has it.
    pub profile: ClusterProfile,
    /// Its target, or why it has none.
    pub outcome: Result<Arc<Target>, ProfileError>,
    /// Providers that were not chosen.
    pub skipped: Vec<Skipped>,
    /// Problems that do not make the profile unusable.
    pub warnings: Vec<String>,
    /// The fleet's revision when this was written, which every change of the fleet increases. 0: not part of a fleet yet.
    pub revision: u64,
}

impl KnownProfile {
    /// Resolves `profile` against `configured`.
    pub(super) fn new(profile: ClusterProfile, configured: &[Arc<Provider>], rules: EndpointRules) -> Self {
        let (resolution, skipped) = resolve(&profile, configured, rules);
        let (outcome, warnings) = match resolution {
            Ok(Resolution { provider, configured, endpoint, warnings }) => {
                (Ok(Arc::new(Target::new(profile.name.clone(), provider, configured, endpoint))), warnings)
            }
            Err(error) => (Err(error), Vec::new()),
        };
        Self { profile, outcome, skipped, warnings, revision: 0 }
    }

    /// Whether readers see no difference to `newer`, and its credential is the same.
    pub(super) fn looks_like(&self, newer: &Self) -> bool {
        let leads_alike = match (&self.outcome, &newer.outcome) {
            (Ok(one), Ok(other)) => one.is_same(other),
            (Err(one), Err(other)) => one == other,
            _ => false,
        };
        leads_alike && (&self.skipped, &self.warnings) == (&newer.skipped, &newer.warnings)
    }

    /// Its target, if it has one.
    pub(super) fn target(&self) -> Option<&Target> {
        self.outcome.as_deref().ok()
    }
}
