//! The known ClusterProfiles, each resolved to its plugin invocation.

pub mod hub;
mod hub_state;
mod known;
mod profiles;
pub mod resolver;
mod verify;

use std::{
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use tokio::sync::watch;

use self::profiles::Profiles;
use credbroker_plugin::{
    ProfileName, Provider, Providers, Target,
    cluster_profile::{ClusterProfile, EndpointRules},
};

pub use hub_state::HubReads;
pub use hub_state::HubState;
pub use known::KnownProfile;
pub use profiles::ProfileChange;
pub use verify::ApiVerifier;

/// Every known profile. The hub writes it, and requests read it.
///
/// A profile is resolved once, when it changes, into an immutable value; a request only looks it up.
#[derive(Debug)]
pub struct Fleet {
    state: RwLock<FleetState>,
    revision: watch::Sender<u64>,
    hub: watch::Sender<HubState>,
    reads: watch::Sender<HubReads>,
}

#[derive(Debug)]
struct FleetState {
    basis: Arc<Basis>,
    profiles: Profiles,
}

/// What profiles are resolved against. A reload replaces it.
#[derive(Debug)]
struct Basis {
    providers: Arc<Providers>,
    rules: EndpointRules,
}

impl Fleet {
    /// A fleet without profiles. It resolves profiles to the access providers among `providers`.
    pub fn new(providers: Arc<Providers>, rules: EndpointRules) -> Self {
        let (revision, hub, reads) =
            (watch::Sender::default(), watch::Sender::default(), watch::Sender::default());
        let basis = Arc::new(Basis { providers, rules });
        let state = FleetState { basis, profiles: Profiles::default() };
        Self { state: RwLock::new(state), revision, hub, reads }
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
        let (known, state) = self.resolved(profile);
        self.put(state, known)
    }

    /// Resolves a known profile against the current providers, if it is still `old`.
    pub fn resolve_again(&self, old: &Arc<KnownProfile>) -> ProfileChange {
        let (mut known, mut state) = self.resolved(old.profile.clone());
        let current = state.profiles.get(&known.profile.name);
        if !current.is_some_and(|current| Arc::ptr_eq(current, old)) {
            return ProfileChange::None;
        }
        if old.looks_like(&known) {
            // Watchers see no difference. The provider may be a newer one with other settings.
            known.revision = old.revision;
            state.profiles.replace(known);
            return ProfileChange::None;
        }
        self.put(state, known)
    }

    /// Resolves `profile`, and takes the lock while the result is up to date.
    fn resolved(&self, mut profile: ClusterProfile) -> (KnownProfile, RwLockWriteGuard<'_, FleetState>) {
        loop {
            let basis = Arc::clone(&self.read().basis);
            let known = KnownProfile::new(profile, basis.providers.access_providers(), basis.rules);
            let state = self.write();
            if Arc::ptr_eq(&state.basis, &basis) {
                return (known, state);
            }
            profile = known.profile;
        }
    }

    fn put(&self, mut state: RwLockWriteGuard<'_, FleetState>, mut known: KnownProfile) -> ProfileChange {
        known.revision = *self.revision.borrow() + 1;
        let revision = known.revision;
        let change = state.profiles.put(known);
        // Under the lock, so that a reader of the number sees the change.
        self.revision.send_replace(revision);
        change
    }

    /// Removes a profile. Returns whether it was known.
    pub fn remove(&self, name: &ProfileName) -> bool {
        let mut state = self.write();
        let was_known = state.profiles.remove(name);
        if was_known {
            self.revision.send_modify(|revision| *revision += 1);
        }
        was_known
    }

    /// The current profile of that name.
    pub fn get(&self, name: &ProfileName) -> Option<Arc<KnownProfile>> {
        self.read().profiles.get(name).map(Arc::clone)
    }

    /// Notifies when the profile of `target` resolves to another target, at once if it already does. Closed when the
    /// profile is deleted.
    pub fn follow(&self, target: &Arc<Target>) -> watch::Receiver<u64> {
        self.read().profiles.follow(target)
    }

    /// Every profile, or those of one namespace, sorted by name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<KnownProfile>> {
        self.read().profiles.list(namespace)
    }

    /// The targets of `provider` at that server, sorted by name.
    pub fn at(&self, provider: &str, server: &str) -> Vec<Arc<Target>> {
        self.read().profiles.at(provider, server)
    }

    /// A number that every change of any profile increases.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The number of the last change of any profile.
    pub fn revision(&self) -> u64 {
        *self.revision.borrow()
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
        self.hub.send_if_modified(|now| std::mem::replace(now, state) != *now);
    }

    /// The attempts to read the hub.
    pub fn reads(&self) -> watch::Receiver<HubReads> {
        self.reads.subscribe()
    }

    /// An attempt to read the hub begins.
    pub fn begin_read(&self) {
        self.reads.send_modify(HubReads::begin);
    }

    /// An attempt to read the hub has succeeded, or has failed and is followed by another one after `pause`. The state of
    /// the hub is already set.
    pub fn end_read(&self, pause: Option<Duration>) {
        self.reads.send_modify(|reads| reads.end(pause));
    }

    /// The maps are consistent after every step, so a poisoned lock is usable.
    fn read(&self) -> RwLockReadGuard<'_, FleetState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, FleetState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
