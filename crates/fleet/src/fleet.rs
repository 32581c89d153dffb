//! The known ClusterProfiles, each resolved to its plugin invocation, and the state of the hub that they come from.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::Instant};

use credbroker_credential::Cluster;
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{
    ProfileError, ProfileName, Providers, Target,
    cluster_profile::{ClusterProfile, EndpointRules, Resolution, Skipped, resolve},
};

/// Every known profile. The hub writes it, and requests read it.
///
/// A profile is resolved once, when it changes, into an immutable value; a request only looks it up.
#[derive(Debug)]
pub struct Fleet {
    state: RwLock<FleetState>,
    revision: watch::Sender<u64>,
    hub: watch::Sender<HubState>,
    /// When the next attempt to read the hub begins, sent when one ends. `None`, or if that has passed: one is in progress.
    reads: watch::Sender<Option<Instant>>,
}

#[derive(Debug)]
struct FleetState {
    basis: Arc<Basis>,
    by_name: BTreeMap<ProfileName, Cell>,
    /// By server, for callers that name a cluster and no profile.
    by_server: HashMap<String, BTreeSet<ProfileName>>,
}

/// One profile and its followers.
#[derive(Debug)]
struct Cell {
    known: Arc<KnownProfile>,
    /// The revision of its last move. Closed when the profile is deleted.
    changed: watch::Sender<u64>,
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
        let basis = Arc::new(Basis { providers, rules });
        let state = FleetState { basis, by_name: BTreeMap::new(), by_server: HashMap::new() };
        Self {
            state: RwLock::new(state),
            revision: watch::Sender::default(),
            hub: watch::Sender::default(),
            reads: watch::Sender::default(),
        }
    }

    /// From now on resolves against other providers. Known profiles change only with
    /// [`resolve_again`](Self::resolve_again), which is needed if this returns true: an access provider or a rule differs.
    pub fn rebase(&self, providers: Arc<Providers>, rules: EndpointRules) -> bool {
        let basis = Arc::new(Basis { providers, rules });
        let before = std::mem::replace(&mut self.write().basis, Arc::clone(&basis));
        let (old, new) = (&before.providers.access, &basis.providers.access);
        before.rules != rules || old.iter().map(Arc::as_ptr).ne(new.iter().map(Arc::as_ptr))
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
        let Some(cell) = state.by_name.get_mut(&known.profile.name) else { return ProfileChange::None };
        if !Arc::ptr_eq(&cell.known, old) {
            return ProfileChange::None;
        }
        if old.looks_like(&known) {
            // Watchers see no difference. The provider may be a newer one with other settings.
            known.revision = old.revision;
            cell.known = Arc::new(known);
            return ProfileChange::None;
        }
        self.put(state, known)
    }

    /// Resolves `profile`, and takes the lock while the result is up to date.
    fn resolved(&self, mut profile: ClusterProfile) -> (KnownProfile, RwLockWriteGuard<'_, FleetState>) {
        loop {
            let basis = Arc::clone(&self.read().basis);
            let Resolution { outcome, skipped, warnings } =
                resolve(&profile, &basis.providers.access, basis.rules);
            let known = KnownProfile { profile, outcome, skipped, warnings, revision: 0 };
            let state = self.write();
            if Arc::ptr_eq(&state.basis, &basis) {
                return (known, state);
            }
            profile = known.profile;
        }
    }

    fn put(&self, mut state: RwLockWriteGuard<'_, FleetState>, mut known: KnownProfile) -> ProfileChange {
        let revision = self.revision() + 1;
        known.revision = revision;
        let (name, known) = (known.profile.name.clone(), Arc::new(known));
        let old = state.by_name.get(&name).map(|cell| Arc::clone(&cell.known));
        let before = old.as_ref().and_then(|old| old.target());
        let moved = match (before, known.target()) {
            (Some(before), Some(now)) => !before.is_same(now),
            (before, now) => before.is_some() || now.is_some(),
        };
        if let Some(old) = &old {
            state.forget_server(old);
        }
        if let Some(target) = known.target() {
            let server = server(&target.endpoint).to_owned();
            state.by_server.entry(server).or_default().insert(name.clone());
        }
        if let Some(cell) = state.by_name.get_mut(&name) {
            cell.known = known;
            if moved {
                cell.changed.send_replace(revision);
            }
        } else {
            state.by_name.insert(name, Cell { known, changed: watch::Sender::new(revision) });
        }
        // Under the lock, so that a reader of the number sees the change.
        self.revision.send_replace(revision);
        if before.is_some() && moved { ProfileChange::Moved } else { ProfileChange::Shown }
    }

    /// Removes a profile. Returns whether it was known.
    pub fn remove(&self, name: &ProfileName) -> bool {
        let mut state = self.write();
        let Some(cell) = state.by_name.remove(name) else { return false };
        state.forget_server(&cell.known);
        self.revision.send_modify(|revision| *revision += 1);
        true
    }

    /// The current profile of that name.
    pub fn get(&self, name: &ProfileName) -> Option<Arc<KnownProfile>> {
        self.read().by_name.get(name).map(|cell| Arc::clone(&cell.known))
    }

    /// Notifies when the profile of `target` resolves to another target, immediately if it already does. Closed when the
    /// profile is deleted.
    pub fn follow(&self, target: &Arc<Target>) -> watch::Receiver<u64> {
        let state = self.read();
        let Some(cell) = state.by_name.get(&target.profile) else {
            return watch::Sender::default().subscribe();
        };
        let mut receiver = cell.changed.subscribe();
        if !cell.known.target().is_some_and(|now| now.is_same(target)) {
            receiver.mark_changed();
        }
        receiver
    }

    /// Every profile, or those of one namespace, sorted by name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<KnownProfile>> {
        let is_wanted = |name: &ProfileName| namespace.is_none_or(|namespace| *name.namespace == *namespace);
        let state = self.read();
        let cells = state.by_name.iter().filter(|(name, _)| is_wanted(name));
        cells.map(|(_, cell)| Arc::clone(&cell.known)).collect()
    }

    /// The targets of `provider` at that server, sorted by name.
    pub fn at(&self, provider: &str, server: &str) -> Vec<Arc<Target>> {
        let state = self.read();
        let names = state.by_server.get(server.trim_end_matches('/')).into_iter().flatten();
        let targets = names.filter_map(|name| state.by_name.get(name)?.known.target());
        targets.filter(|target| *target.provider.name == *provider).cloned().collect()
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

    /// Why the hub was not read yet, for a request that needs a profile, and the time until it is read again. `None`: it was.
    pub fn unread(&self) -> Option<(Arc<str>, Duration)> {
        let HubState { synced, problem, .. } = self.hub();
        let problem = problem.unwrap_or_else(|| "the hub has not answered yet".into());
        (!synced).then(|| (problem, self.pause()))
    }

    /// Notifies when the state of the hub changes.
    pub fn hub_states(&self) -> watch::Receiver<HubState> {
        self.hub.subscribe()
    }

    /// Sets the state of the hub.
    pub fn set_hub(&self, synced: bool, problem: Option<Arc<str>>) {
        self.hub.send_if_modified(|state| state.set(synced, problem, SystemClock.now().wall));
    }

    /// Notifies when an attempt to read the hub has ended.
    pub fn reads(&self) -> watch::Receiver<Option<Instant>> {
        self.reads.subscribe()
    }

    /// The time until the next attempt to read the hub begins; zero: it is in progress.
    #[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the pause does")]
    pub fn pause(&self) -> Duration {
        self.reads.borrow().map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()))
    }

    /// An attempt to read the hub has succeeded, or has failed and is followed by another one after `pause`. The state of
    /// the hub is already set.
    #[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the pause does")]
    pub fn end_read(&self, pause: Option<Duration>) {
        self.reads.send_replace(pause.and_then(|pause| Instant::now().checked_add(pause)));
    }

    /// The maps are consistent after every step, so a poisoned lock is usable.
    fn read(&self) -> RwLockReadGuard<'_, FleetState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, FleetState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    /// Whether readers see no difference to `newer`, and its credential is the same.
    fn looks_like(&self, newer: &Self) -> bool {
        let leads_alike = match (&self.outcome, &newer.outcome) {
            (Ok(one), Ok(other)) => one.is_same(other),
            (Err(one), Err(other)) => one == other,
            _ => false,
        };
        leads_alike && (&self.skipped, &self.warnings) == (&newer.skipped, &newer.warnings)
    }

    /// Its target, if it has one.
    pub fn target(&self) -> Option<&Arc<Target>> {
        self.outcome.as_ref().ok()
    }
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

impl FleetState {
    fn forget_server(&mut self, known: &KnownProfile) {
        let Some(target) = known.target() else { return };
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

/// Whether the hub was read, and why it cannot be read now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubState {
    /// All profiles were read at least once.
    pub synced: bool,
    /// Why the hub cannot be read now.
    pub problem: Option<Arc<str>>,
    /// Since when it was read, or has failed; `None`: neither has happened yet.
    pub since: Option<SystemTime>,
}

impl HubState {
    /// Returns whether that changes anything. The time does not change when only the message of a failure changes.
    fn set(&mut self, synced: bool, problem: Option<Arc<str>>, now: SystemTime) -> bool {
        let is_same = (self.synced, self.problem.is_some()) == (synced, problem.is_some());
        let since = if is_same { self.since } else { Some(now) };
        let newer = Self { synced, problem, since };
        std::mem::replace(self, newer) != *self
    }
}

#[cfg(test)]
mod tests;
