//! The configuration in force, as requests see it.

use std::sync::Arc;

use super::Source;
use crate::{Fleet, HubState};
use credbroker_credential::Cluster;
use credbroker_plugin::{
    ClusterInfo, Entry, ProfileName, ProviderRef, Providers, ResolveError, Route, Target,
    access::{self, Permit},
    difference,
};

/// Everything that requests are resolved against. A reload replaces it as a whole.
#[derive(Clone, Debug)]
pub struct World {
    /// The configured providers.
    pub providers: Arc<Providers>,
    /// The known ClusterProfiles; `None`: the broker reads none.
    pub fleet: Option<Arc<Fleet>>,
}

impl World {
    /// The run that a caller with `permit` may have. If access rules limit the caller, what does not exist gives the same
    /// error as what they forbid, and the rules are asked before anything is looked up.
    pub(super) fn permitted(
        &self,
        source: &Source,
        sent: Option<&Cluster>,
        permit: &Permit,
    ) -> Result<Route<'_>, ResolveError> {
        if !permit.allows(source.target()) {
            return Err(source.not_allowed());
        }
        let lead = self.lead(source, sent, permit);
        lead.map_err(|error| match error {
            ResolveError::UnknownProvider { .. }
            | ResolveError::UnknownProfile { is_configured: true, .. }
                if permit.hides_unknown() =>
            {
                source.not_allowed()
            }
            // Without a known definition there is no provider of that name.
            ResolveError::UnknownDefinition { known, .. } if permit.hides_unknown() && known.is_empty() => {
                source.not_allowed()
            }
            ResolveError::Profile { profile, source } => {
                let shows = |name: &str| permit.allows(access::CallTarget::Provider(name));
                ResolveError::Profile { profile, source: source.without_configured(shows) }
            }
            other => other,
        })
    }

    fn lead(
        &self,
        source: &Source,
        sent: Option<&Cluster>,
        permit: &Permit,
    ) -> Result<Route<'_>, ResolveError> {
        match source {
            Source::Provider(provider) => {
                let entry = self.providers.entry(provider)?;
                match sent {
                    Some(sent) if entry.provider.cluster_info == ClusterInfo::Match => {
                        self.matched(entry, sent, permit)
                    }
                    sent => entry.of_provider(sent),
                }
            }
            Source::ClusterProfile(profile) => {
                let target = self.target(profile)?;
                source.check(permit, &target.provider.name, None)?;
                if let Some(difference) = sent.and_then(|sent| difference(sent, &target.endpoint)) {
                    let provider = Arc::clone(&target.provider.name);
                    let profile = Some(profile.clone());
                    return Err(ResolveError::ClusterMismatch { provider, profile, difference });
                }
                self.providers.configured(&target.provider.name)?.of_target(target)
            }
        }
    }

    fn target(&self, profile: &ProfileName) -> Result<Arc<Target>, ResolveError> {
        let unknown =
            |is_configured| ResolveError::UnknownProfile { profile: profile.clone(), is_configured };
        let fleet = self.fleet.as_ref().ok_or_else(|| unknown(false))?;
        let Some(known) = fleet.get(profile) else {
            return Err(match fleet.hub() {
                HubState { synced: true, .. } => unknown(true),
                unread => {
                    let (profile, retry_after) = (profile.clone(), fleet.reads().borrow().pause());
                    ResolveError::ProfileUnread { profile, problem: unread.why_unread(), retry_after }
                }
            });
        };
        let refused = |source| ResolveError::Profile { profile: profile.clone(), source };
        known.outcome.clone().map_err(refused)
    }

    pub(super) fn matches_clusters(&self, provider: &ProviderRef) -> bool {
        let entry = self.providers.entry(provider);
        entry.is_ok_and(|entry| entry.provider.cluster_info == ClusterInfo::Match)
    }

    /// Finds a known cluster that matches the one that the caller sent. The plugin receives the broker's value.
    fn matched<'a>(
        &'a self,
        entry: &'a Entry,
        sent: &Cluster,
        permit: &Permit,
    ) -> Result<Route<'a>, ResolveError> {
        let provider = &entry.provider;
        let named = || Arc::clone(&provider.name);
        let mismatch =
            |difference| ResolveError::ClusterMismatch { provider: named(), profile: None, difference };
        let mut fitting = provider.clusters.iter().filter(|known| difference(sent, known).is_none());
        if let Some(known) = fitting.next() {
            if provider.provide_cluster_info && fitting.next().is_some() {
                return Err(mismatch(
                    "it fits several of them that the plugin would tell apart; send its exec extension too",
                ));
            }
            return entry.of_known(known);
        }
        let mut differs = None;
        let at_server = self.fleet.as_ref().map(|fleet| fleet.at(&provider.name, &sent.server));
        let mut same = at_server.unwrap_or_default();
        same.retain(|target| permit.allows(access::CallTarget::Through(&provider.name, &target.profile)));
        same.retain(|target| {
            let difference = difference(sent, &target.endpoint);
            differs = difference.or(differs);
            difference.is_none()
        });
        let mut same = same.into_iter();
        let Some(target) = same.next() else {
            return Err(match self.fleet.as_ref().map(|fleet| (fleet.hub(), fleet.reads())) {
                // The first read of the hub may still find it.
                Some((unread, reads)) if !unread.synced => {
                    let (problem, retry_after) = (unread.why_unread(), reads.borrow().pause());
                    ResolveError::ClusterUnread { provider: named(), problem, retry_after }
                }
                _ => mismatch(differs.unwrap_or("its server is not one of theirs")),
            });
        };
        if same.any(|other| !target.is_same_run(&other)) {
            return Err(mismatch(
                "several ClusterProfiles have it and lead to different runs; ask with --cluster-profile NAMESPACE/NAME",
            ));
        }
        entry.of_target(target)
    }
}
