//! The known profiles by their name and by their server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use tokio::sync::watch;

use super::known::KnownProfile;
use credbroker_credential::Cluster;
use credbroker_plugin::{ProfileName, Target};

/// The known profiles.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    pub(super) by_name: BTreeMap<ProfileName, Cell>,
    /// By server, for callers that name a cluster and no profile.
    pub(super) by_server: HashMap<String, BTreeSet<ProfileName>>,
}

/// One profile and its followers.
#[derive(Debug)]
pub(super) struct Cell {
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

impl Profiles {
    /// The current profile of that name.
    pub(super) fn get(&self, name: &ProfileName) -> Option<&Arc<KnownProfile>> {
        self.by_name.get(name).map(|cell| &cell.known)
    }

    /// Replaces a profile by one that looks the same to watchers.
    pub(super) fn replace(&mut self, known: KnownProfile) {
        if let Some(cell) = self.by_name.get_mut(&known.profile.name) {
            cell.known = Arc::new(known);
        }
    }

    /// Adds or replaces a profile, with its revision.
    pub(super) fn put(&mut self, known: KnownProfile) -> ProfileChange {
        let (name, revision, known) = (known.profile.name.clone(), known.revision, Arc::new(known));
        let old = self.by_name.get(&name).map(|cell| Arc::clone(&cell.known));
        let before = old.as_ref().and_then(|old| old.target());
        let moved = match (before, known.target()) {
            (Some(before), Some(now)) => !before.is_same(now),
            (before, now) => before.is_some() || now.is_some(),
        };
        if let Some(old) = &old {
            self.forget_server(old);
        }
        if let Ok(target) = &known.outcome {
            self.by_server.entry(server(&target.endpoint).to_owned()).or_default().insert(name.clone());
        }
        if let Some(cell) = self.by_name.get_mut(&name) {
            cell.known = known;
            if moved {
                cell.changed.send_replace(revision);
            }
        } else {
            self.by_name.insert(name, Cell { known, changed: watch::Sender::new(revision) });
        }
        if before.is_some() && moved { ProfileChange::Moved } else { ProfileChange::Shown }
    }

    /// Removes a profile. Returns whether it was known.
    pub(super) fn remove(&mut self, name: &ProfileName) -> bool {
        let Some(cell) = self.by_name.remove(name) else { return false };
        self.forget_server(&cell.known);
        true
    }

    /// See [`Fleet::follow`](super::Fleet::follow).
    pub(super) fn follow(&self, target: &Arc<Target>) -> watch::Receiver<u64> {
        let Some(cell) = self.by_name.get(&target.profile) else {
            return watch::Sender::default().subscribe();
        };
        let mut receiver = cell.changed.subscribe();
        if !matches!(&cell.known.outcome, Ok(now) if now.is_same(target)) {
            receiver.mark_changed();
        }
        receiver
    }

    /// Every profile, or those of one namespace, sorted by name.
    pub(super) fn list(&self, namespace: Option<&str>) -> Vec<Arc<KnownProfile>> {
        let wanted = |name: &ProfileName| namespace.is_none_or(|namespace| *name.namespace == *namespace);
        let cells = self.by_name.iter().filter(|(name, _)| wanted(name));
        cells.map(|(_, cell)| Arc::clone(&cell.known)).collect()
    }

    /// The targets of `provider` at that server, sorted by name.
    pub(super) fn at(&self, provider: &str, server: &str) -> Vec<Arc<Target>> {
        let names = self.by_server.get(server.trim_end_matches('/')).into_iter().flatten();
        let known = names.filter_map(|name| self.get(name));
        let targets = known.filter_map(|known| known.outcome.as_ref().ok().cloned());
        targets.filter(|target| *target.provider.name == *provider).collect()
    }

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
