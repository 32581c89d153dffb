//! The known ClusterProfiles, each resolved to its plugin invocation.

mod cluster_profile;
mod known;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;

use crate::{
    credential::Cluster,
    plugin::{ProfileName, Provider, Providers, ResolveError, Target},
};

pub use cluster_profile::{AccessProvider, ClusterProfile, EndpointRules, Skipped};
pub use known::KnownProfile;

/// Every known profile. The hub writes it, and requests read it.
///
/// A profile is resolved once, when it changes, into an immutable value; a request only looks it up.
#[derive(Debug)]
pub struct Fleet {
    profiles: RwLock<Profiles>,
    revision: watch::Sender<u64>,
    hub: watch::Sender<HubState>,
}

#[derive(Debug)]
struct Profiles {
    basis: Arc<Basis>,
    by_name: BTreeMap<ProfileName, Cell>,
    /// By server, for callers that name a cluster and no profile.
    by_server: HashMap<String, BTreeSet<ProfileName>>,
}

/// What profiles are resolved against. A reload replaces it.
#[derive(Debug)]
struct Basis {
    providers: Arc<Providers>,
    rules: EndpointRules,
}

/// One profile and its followers.
#[derive(Debug)]
struct Cell {
    known: Arc<KnownProfile>,
    /// The revision of its last move. Closed when the profile is deleted.
    changed: watch::Sender<u64>,
}

/// The effect of a change on the credentials in the cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProfileChange {
    /// The profile did not change.
    None,
    /// The profile is new, or only its descriptive fields changed.
    Shown,
    /// It resolves to another cluster or another plugin invocation, so its credential is outdated.
    Moved,
}

/// Whether the hub was read, and why it cannot be read now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubState {
    /// All profiles were read at least once.
    pub synced: bool,
    /// Why the hub cannot be read now.
    pub problem: Option<Arc<str>>,
}

impl Fleet {
    /// A fleet without profiles. It resolves profiles to the access providers among `providers`.
    pub fn new(providers: Arc<Providers>, rules: EndpointRules) -> Self {
        let (revision, hub) = (watch::Sender::default(), watch::Sender::default());
        let basis = Arc::new(Basis { providers, rules });
        let profiles = Profiles { basis, by_name: BTreeMap::new(), by_server: HashMap::new() };
        Self { profiles: RwLock::new(profiles), revision, hub }
    }

    /// From now on resolves against other providers. Known profiles change only with
    /// [`resolve_again`](Self::resolve_again), which is needed if this returns true: an access provider or a rule differs.
    pub fn rebase(&self, providers: Arc<Providers>, rules: EndpointRules) -> bool {
        let basis = Arc::new(Basis { providers, rules });
        let before = std::mem::replace(&mut self.write().basis, Arc::clone(&basis));
        let (old, new) = (before.providers.access_providers(), basis.providers.access_providers());
        let is_same = |(one, other): (&Arc<Provider>, &Arc<Provider>)| Arc::ptr_eq(one, other);
        before.rules != rules || old.len() != new.len() || !old.iter().zip(new).all(is_same)
    }

    /// Adds or replaces a profile.
    pub fn apply(&self, profile: ClusterProfile) -> ProfileChange {
        if self.get(&profile.name).is_some_and(|old| old.profile == profile) {
            return ProfileChange::None;
        }
        let (known, mut profiles) = self.resolved(profile);
        // Read again under the lock: another writer may have changed it.
        let old = profiles.by_name.get(&known.profile.name).map(|cell| Arc::clone(&cell.known));
        self.put(&mut profiles, known, old.as_deref())
    }

    /// Resolves a known profile against the current providers, if it is still `old`.
    pub fn resolve_again(&self, old: &Arc<KnownProfile>) -> ProfileChange {
        let (mut known, mut profiles) = self.resolved(old.profile.clone());
        let Some(cell) = profiles.by_name.get_mut(&known.profile.name) else { return ProfileChange::None };
        if !Arc::ptr_eq(&cell.known, old) {
            return ProfileChange::None;
        }
        if old.looks_like(&known) {
            // Watchers see no difference. The provider may be a newer one with other settings.
            known.revision = old.revision;
            cell.known = Arc::new(known);
            return ProfileChange::None;
        }
        self.put(&mut profiles, known, Some(old))
    }

    /// Resolves `profile`, and takes the lock while the result is up to date.
    fn resolved(&self, mut profile: ClusterProfile) -> (KnownProfile, RwLockWriteGuard<'_, Profiles>) {
        loop {
            let basis = Arc::clone(&self.read().basis);
            let known = KnownProfile::new(profile, basis.providers.access_providers(), basis.rules);
            let profiles = self.write();
            if Arc::ptr_eq(&profiles.basis, &basis) {
                return (known, profiles);
            }
            profile = known.profile;
        }
    }

    fn put(
        &self,
        profiles: &mut Profiles,
        mut known: KnownProfile,
        old: Option<&KnownProfile>,
    ) -> ProfileChange {
        let name = known.profile.name.clone();
        let revision = *self.revision.borrow() + 1;
        known.revision = revision;
        let known = Arc::new(known);
        let before = old.and_then(KnownProfile::target);
        let moved = match (before, known.target()) {
            (Some(before), Some(now)) => !before.is_same(now),
            (before, now) => before.is_some() || now.is_some(),
        };
        if let Some(old) = old {
            profiles.forget_server(old);
        }
        if let Ok(target) = &known.outcome {
            profiles.by_server.entry(server(&target.endpoint).to_owned()).or_default().insert(name.clone());
        }
        if let Some(cell) = profiles.by_name.get_mut(&name) {
            cell.known = known;
            if moved {
                cell.changed.send_replace(revision);
            }
        } else {
            profiles.by_name.insert(name, Cell { known, changed: watch::Sender::new(revision) });
        }
        // Under the lock, so that a reader of the number sees the change.
        self.revision.send_replace(revision);
        if before.is_some() && moved { ProfileChange::Moved } else { ProfileChange::Shown }
    }

    /// Removes a profile. Returns whether it was known.
    pub fn remove(&self, name: &ProfileName) -> bool {
        let mut profiles = self.write();
        let Some(cell) = profiles.by_name.remove(name) else { return false };
        profiles.forget_server(&cell.known);
        self.revision.send_modify(|revision| *revision += 1);
        true
    }

    /// The current profile of that name.
    pub fn get(&self, name: &ProfileName) -> Option<Arc<KnownProfile>> {
        self.read().by_name.get(name).map(|cell| Arc::clone(&cell.known))
    }

    /// Notifies when the profile of `target` resolves to another target, at once if it already does. Closed when the
    /// profile is deleted.
    pub(crate) fn follow(&self, target: &Arc<Target>) -> watch::Receiver<u64> {
        let profiles = self.read();
        let Some(cell) = profiles.by_name.get(&target.profile) else {
            return watch::Sender::default().subscribe();
        };
        let mut receiver = cell.changed.subscribe();
        if !matches!(&cell.known.outcome, Ok(now) if now.is_same(target)) {
            receiver.mark_changed();
        }
        receiver
    }

    /// Every profile, or those of one namespace, sorted by name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<KnownProfile>> {
        let profiles = self.read();
        let wanted = |name: &ProfileName| namespace.is_none_or(|namespace| *name.namespace == *namespace);
        let cells = profiles.by_name.iter().filter(|(name, _)| wanted(name));
        cells.map(|(_, cell)| Arc::clone(&cell.known)).collect()
    }

    /// The targets of `provider` at that server, sorted by name.
    pub(crate) fn at(&self, provider: &str, server: &str) -> Vec<Arc<Target>> {
        let profiles = self.read();
        let names = profiles.by_server.get(server.trim_end_matches('/')).into_iter().flatten();
        let known = names.filter_map(|name| Some(&profiles.by_name.get(name)?.known));
        let targets = known.filter_map(|known| known.outcome.as_ref().ok().cloned());
        targets.filter(|target| *target.provider.name == *provider).collect()
    }

    /// A number that every change of any profile increases.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Whether the first read of the hub succeeded or failed.
    pub(crate) fn is_settled(&self) -> bool {
        self.hub.borrow().is_settled()
    }

    /// The state of the hub.
    pub fn hub(&self) -> HubState {
        self.hub.borrow().clone()
    }

    /// Notifies when the state of the hub changes.
    pub fn hub_states(&self) -> watch::Receiver<HubState> {
        self.hub.subscribe()
    }

    /// Sets the state of the hub.
    pub fn set_hub(&self, state: HubState) {
        self.hub.send_if_modified(|now| {
            let changed = *now != state;
            *now = state;
            changed
        });
    }

    /// The maps are consistent after every step, so a poisoned lock is usable.
    fn read(&self) -> RwLockReadGuard<'_, Profiles> {
        self.profiles.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Profiles> {
        self.profiles.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubState {
    /// Whether the first read succeeded or failed, so that there is nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.problem.is_some()
    }

    /// The error for a request that needs a profile that was not read yet.
    pub(crate) fn unavailable(self, wanted: String) -> ResolveError {
        let problem = self.problem.unwrap_or_else(|| "the hub has not answered yet".into());
        ResolveError::HubUnavailable { wanted, problem }
    }
}

impl Profiles {
    fn forget_server(&mut self, known: &KnownProfile) {
        let Ok(target) = &known.outcome else { return };
        let server = server(&target.endpoint);
        if let Some(names) = self.by_server.get_mut(server) {
            names.remove(&target.profile);
            if names.is_empty() {
                self.by_server.remove(server);
            }
        }
    }
}

/// The server without a trailing slash, for comparisons.
fn server(endpoint: &Cluster) -> &str {
    endpoint.server.trim_end_matches('/')
}

#[cfg(test)]
mod tests;
