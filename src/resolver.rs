//! Resolves a request to one invocation of one plugin.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use crate::{
    access::{self, Permit},
    credential::Cluster,
    fleet::{Fleet, HubState},
    plugin::{
        ClusterInfo, Entry, Lead, Origin, PluginKey, PluginSpec, ProfileName, ProviderRef, Providers,
        ResolveError, Target, difference,
    },
    text::shown,
};

/// How long a request waits for the first read of a hub that has not failed yet.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// A caller's request for a credential.
#[derive(Clone, Default)]
pub struct CredentialRequest {
    /// The credential that a request names.
    pub source: Source,
    /// Cluster information that client-go sent to the caller, if any.
    pub cluster: Option<Cluster>,
    /// Variables of the caller's environment, as the caller sent them.
    pub env: BTreeMap<String, String>,
    /// Where the caller runs, which decides which variables it may send.
    pub origin: Origin,
    /// What the caller may request.
    pub permit: Permit,
}

/// The credential that a request names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// The credential of a provider.
    Provider(ProviderRef),
    /// The credential of a cluster, by the name of its ClusterProfile.
    ClusterProfile(ProfileName),
}

impl Source {
    /// What access rules say about it.
    pub(crate) fn target(&self) -> access::Target<'_> {
        match self {
            Self::Provider(provider) => access::Target::Provider(&provider.name),
            Self::ClusterProfile(profile) => access::Target::Profile(profile, None),
        }
    }

    /// Checks whether `permit` allows the run of `provider`, and of `profile` if it is for one, to a caller that names
    /// this source.
    pub(crate) fn check(
        &self,
        permit: &Permit,
        provider: &str,
        profile: Option<&ProfileName>,
    ) -> Result<(), ResolveError> {
        let run = match (self, profile) {
            (Self::Provider(_), Some(profile)) => access::Target::Through(provider, profile),
            (Self::Provider(_), None) => access::Target::Provider(provider),
            (Self::ClusterProfile(profile), _) => access::Target::Profile(profile, Some(provider)),
        };
        if permit.allows(run) { Ok(()) } else { Err(self.not_allowed()) }
    }

    /// The error for a caller that may not know whether it exists.
    pub(crate) fn not_allowed(&self) -> ResolveError {
        match self {
            Self::Provider(provider) => ResolveError::ProviderNotAllowed { name: provider.name.clone() },
            Self::ClusterProfile(profile) => ResolveError::ProfileNotAllowed { profile: profile.clone() },
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::Provider(ProviderRef::default())
    }
}

impl fmt::Debug for CredentialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CredentialRequest");
        shown.field("source", &self.source).field("cluster", &self.cluster.as_ref().map(|c| &c.server));
        shown.field("env", &self.env.keys()).field("origin", &self.origin).finish()
    }
}

/// Resolves requests against the providers and the fleet.
#[derive(Debug)]
pub struct Resolver {
    providers: Arc<Providers>,
    /// `None`: the broker reads no ClusterProfiles.
    fleet: Option<Arc<Fleet>>,
}

impl Resolver {
    /// A resolver for the configured providers, and for the fleet if one is read.
    pub fn new(providers: Arc<Providers>, fleet: Option<Arc<Fleet>>) -> Self {
        Self { providers, fleet }
    }

    /// The configured providers.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// The fleet, if one is read.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    /// The key of the run that `ask` leads to, to look up its credential. Reads memory only, copies no part of the
    /// request, and hashes only the parts that the plugin would receive.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve), which checks more. The cache has no entry for a request that it refuses.
    pub fn key(&self, ask: &CredentialRequest) -> Result<PluginKey, ResolveError> {
        let sent = ask.cluster.as_ref();
        let lead = self.permitted(&ask.source, sent, &ask.permit)?;
        lead.check(&ask.env, ask.origin)?;
        Ok(lead.key(sent, &ask.env))
    }

    /// Resolves a request to one invocation. Reads memory only; the run looks up the plugin's file.
    ///
    /// # Errors
    ///
    /// The request leads to no run until the configuration or the fleet changes.
    pub fn resolve(&self, ask: CredentialRequest) -> Result<PluginSpec, ResolveError> {
        let CredentialRequest { source, cluster, env, origin, permit } = ask;
        let lead = self.permitted(&source, cluster.as_ref(), &permit)?;
        lead.check(&env, origin)?;
        lead.spec(cluster, env)
    }

    /// The run that a caller with `permit` may have. If access rules limit the caller, what does not exist gives the same
    /// error as what they forbid, and the rules are asked before anything is looked up.
    fn permitted(
        &self,
        source: &Source,
        sent: Option<&Cluster>,
        permit: &Permit,
    ) -> Result<Lead<'_>, ResolveError> {
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
                let shows = |name: &str| permit.allows(access::Target::Provider(name));
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
    ) -> Result<Lead<'_>, ResolveError> {
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
                    let known = format!("ClusterProfile `{profile}` names");
                    return Err(ResolveError::ClusterMismatch { known, difference });
                }
                self.providers.configured(&target.provider.name)?.of_target(target)
            }
        }
    }

    /// Waits for the first read of the hub if the request depends on it. The wait is bounded.
    pub async fn settled(&self, ask: &CredentialRequest) {
        let Some(fleet) = self.fleet.as_ref().filter(|fleet| !fleet.is_settled()) else { return };
        if !ask.permit.allows(ask.source.target()) {
            return; // a wait would show that the provider exists
        }
        let needs_fleet = match &ask.source {
            Source::ClusterProfile(profile) => fleet.get(profile).is_none(),
            Source::Provider(provider) => ask.cluster.is_some() && self.matches_clusters(provider),
        };
        if needs_fleet {
            let mut hub = fleet.hub_states();
            // Ignores a timeout: the answer then uses what is known.
            drop(timeout(FIRST_LOOK, hub.wait_for(HubState::is_settled)).await);
        }
    }

    /// Notified when the profile of `spec` changes, closed when it is deleted. `None`: `spec` has no profile.
    pub fn follow(&self, spec: &PluginSpec) -> Option<watch::Receiver<u64>> {
        Some(self.fleet.as_ref()?.follow(spec.target.as_ref()?))
    }

    fn target(&self, profile: &ProfileName) -> Result<Arc<Target>, ResolveError> {
        let unknown =
            |is_configured| ResolveError::UnknownProfile { profile: profile.clone(), is_configured };
        let fleet = self.fleet.as_ref().ok_or_else(|| unknown(false))?;
        let Some(known) = fleet.get(profile) else {
            return Err(match fleet.hub() {
                HubState { synced: true, .. } => unknown(true),
                unread => unread.unavailable(format!("ClusterProfile `{}`", shown(&profile.to_string()))),
            });
        };
        let refused = |source| ResolveError::Profile { profile: profile.clone(), source };
        known.outcome.clone().map_err(refused)
    }

    fn matches_clusters(&self, provider: &ProviderRef) -> bool {
        let entry = self.providers.entry(provider);
        entry.is_ok_and(|entry| entry.provider.cluster_info == ClusterInfo::Match)
    }

    /// Finds a known cluster that matches the one that the caller sent. The plugin receives the broker's value.
    fn matched<'a>(
        &'a self,
        entry: &'a Entry,
        sent: &Cluster,
        permit: &Permit,
    ) -> Result<Lead<'a>, ResolveError> {
        let provider = &entry.provider;
        let known = || format!("those that the broker knows for provider `{}`", provider.name);
        let mismatch = |difference| ResolveError::ClusterMismatch { known: known(), difference };
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
        same.retain(|target| permit.allows(access::Target::Through(&provider.name, &target.profile)));
        same.retain(|target| {
            let difference = difference(sent, &target.endpoint);
            differs = difference.or(differs);
            difference.is_none()
        });
        let mut same = same.into_iter();
        let Some(target) = same.next() else {
            return Err(match self.fleet.as_ref().map(|fleet| fleet.hub()) {
                // The first read of the hub may still find it.
                Some(unread) if !unread.synced => unread.unavailable("the cluster".to_owned()),
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

#[cfg(test)]
mod tests;
