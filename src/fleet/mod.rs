//! The ClusterProfiles that are known, each with the run that it leads to.

mod cluster_profile;
mod hub_state;
mod known;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;

use crate::{
    credential::Cluster,
    plugin::{ProfileName, Providers, Target},
};

pub use cluster_profile::{AccessProvider, ClusterProfile, EndpointRules, Skipped};
pub use hub_state::HubState;
pub use known::KnownProfile;

/// Every known profile. Whoever reads the hub writes it, requests read it.
///
/// Resolution happens when a profile changes, once, into an immutable value; a request only looks it up.
#[derive(Debug)]
pub struct Fleet {
    providers: Arc<Providers>,
    rules: EndpointRules,
    profiles: RwLock<Profiles>,
    revision: watch::Sender<u64>,
    hub: watch::Sender<HubState>,
}

#[derive(Debug, Default)]
struct Profiles {
    by_name: BTreeMap<ProfileName, Cell>,
    /// By server, for callers that name a cluster and no profile.
    by_server: HashMap<String, BTreeSet<ProfileName>>,
}

/// One profile and who follows it.
#[derive(Debug)]
struct Cell {
    known: Arc<KnownProfile>,
    /// The revision since which it leads where it leads. Closed when the profile is gone.
    changed: watch::Sender<u64>,
}

/// What a change means for credentials that are held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The profile says what it said before.
    None,
    /// Only what people look at, or a profile that is new.
    Shown,
    /// It leads elsewhere: what is held for it is for another place, or from another plugin run.
    Moved,
}

impl Fleet {
    /// Empty, resolving against the access providers among `providers`.
    pub fn new(providers: Arc<Providers>, rules: EndpointRules) -> Self {
        let (revision, hub) = (watch::Sender::default(), watch::Sender::default());
        Self { providers, rules, profiles: RwLock::default(), revision, hub }
    }

    /// The profile is now so.
    pub fn apply(&self, profile: ClusterProfile) -> Change {
        if self.get(&profile.name).is_some_and(|old| old.profile == profile) {
            return Change::None;
        }
        let (name, mut known) =
            (profile.name.clone(), KnownProfile::new(profile, self.providers.access_providers(), self.rules));
        let mut profiles = self.write();
        let revision = *self.revision.borrow() + 1;
        known.revision = revision;
        let known = Arc::new(known);
        // Looked at again: another writer may have been here meanwhile.
        let old = profiles.by_name.get(&name).map(|cell| Arc::clone(&cell.known));
        let before = old.as_ref().and_then(|old| old.target());
        let moved = match (before, known.target()) {
            (Some(before), Some(now)) => !before.is_same(now),
            (before, now) => before.is_some() || now.is_some(),
        };
        if let Some(old) = &old {
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
        // Under the lock, so that whoever sees the number sees the change.
        self.revision.send_replace(revision);
        if before.is_some() && moved { Change::Moved } else { Change::Shown }
    }

    /// The profile is gone, if it was there.
    pub fn remove(&self, name: &ProfileName) -> bool {
        let mut profiles = self.write();
        let Some(cell) = profiles.by_name.remove(name) else { return false };
        profiles.forget_server(&cell.known);
        self.revision.send_modify(|revision| *revision += 1);
        true
    }

    /// The profile as it is now.
    pub fn get(&self, name: &ProfileName) -> Option<Arc<KnownProfile>> {
        self.read().by_name.get(name).map(|cell| Arc::clone(&cell.known))
    }

    /// Told when `target` is no longer what its profile leads to, or at once if it is not now; closed when the profile
    /// is gone.
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

    /// What leads to `provider` at that server, sorted by name.
    pub(crate) fn at(&self, provider: &str, server: &str) -> Vec<Arc<Target>> {
        let profiles = self.read();
        let names = profiles.by_server.get(server.trim_end_matches('/')).into_iter().flatten();
        let known = names.filter_map(|name| Some(&profiles.by_name.get(name)?.known));
        let targets = known.filter_map(|known| known.outcome.as_ref().ok().cloned());
        targets.filter(|target| *target.provider.name == *provider).collect()
    }

    /// Grows with every change of any profile.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Whether there is anything to wait for: the first look is over, or fails.
    pub(crate) fn is_settled(&self) -> bool {
        self.hub.borrow().is_settled()
    }

    /// How well the fleet is known now.
    pub fn hub(&self) -> HubState {
        self.hub.borrow().clone()
    }

    /// Told when that changes.
    pub fn hub_states(&self) -> watch::Receiver<HubState> {
        self.hub.subscribe()
    }

    /// Says how well the fleet is known.
    pub fn set_hub(&self, state: HubState) {
        self.hub.send_if_modified(|now| {
            let changed = *now != state;
            *now = state;
            changed
        });
    }

    /// The maps are whole at every moment, so a panic elsewhere does not make them useless.
    fn read(&self) -> RwLockReadGuard<'_, Profiles> {
        self.profiles.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Profiles> {
        self.profiles.write().unwrap_or_else(PoisonError::into_inner)
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

/// As it is compared.
fn server(endpoint: &Cluster) -> &str {
    endpoint.server.trim_end_matches('/')
}

#[cfg(test)]
mod tests;
