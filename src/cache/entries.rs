//! Every entry, found by key, in order, and by ClusterProfile.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    ops::Bound,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use super::{
    Selector,
    entry::{Entry, Interest},
    policy::EVICTABLE_AFTER,
};
use crate::{
    clock::Now,
    plugin::{KeyHasher, PluginKey, PluginSpec, ProfileName},
};

/// A full cache is searched for idle entries this often at most.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Where an entry is in the order in which entries are listed.
pub(crate) type Place = (Arc<str>, PluginKey);

/// Every entry. The maps agree at every moment.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    by_key: HashMap<PluginKey, Arc<Entry>, BuildHasherDefault<KeyHasher>>,
    in_order: BTreeMap<Place, Arc<Entry>>,
    by_profile: HashMap<ProfileName, Vec<Arc<Entry>>>,
    /// Entries that were idle at the last search for room, the idlest last.
    idle: Vec<Weak<Entry>>,
    /// Time since boot before which a search finds no other.
    next_search: Duration,
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &PluginKey) -> Option<&Arc<Entry>> {
        self.by_key.get(key)
    }

    /// The entry of `spec`, made if there is none; `None`: there are `limit` of them, and none is idle.
    pub(crate) fn enter(&mut self, spec: PluginSpec, limit: usize, now: Now) -> Option<Interest> {
        if let Some(entry) = self.by_key.get(&spec.key) {
            entry.touch(now);
            return Some(Interest::new(entry));
        }
        if self.len() >= limit {
            let idlest = self.idlest(now)?;
            self.remove(&idlest);
        }
        let entry = Arc::new(Entry::new(Arc::new(spec), now));
        self.insert(&entry);
        Some(Interest::new(&entry))
    }

    fn insert(&mut self, entry: &Arc<Entry>) {
        let spec = &entry.spec;
        self.by_key.insert(spec.key, Arc::clone(entry));
        self.in_order.insert(place(&entry.spec), Arc::clone(entry));
        if let Some(target) = &spec.target {
            self.by_profile.entry(target.profile.clone()).or_default().push(Arc::clone(entry));
        }
    }

    /// The entry that was not asked for during the longest time. One search over all serves many requests: when every
    /// entry is in use, a request for room costs nothing.
    fn idlest(&mut self, now: Now) -> Option<Arc<Entry>> {
        let gives_way = |entry: &Arc<Entry>| entry.idle(now) >= EVICTABLE_AFTER && !entry.is_busy();
        loop {
            while let Some(idle) = self.idle.pop() {
                let idle = idle.upgrade().filter(&gives_way);
                let is_found = |entry: &Arc<Entry>| {
                    self.by_key.get(&entry.spec.key).is_some_and(|found| Arc::ptr_eq(found, entry))
                };
                if let Some(entry) = idle.filter(is_found) {
                    return Some(entry);
                }
            }
            if now.boot < self.next_search {
                return None;
            }
            let mut idle: Vec<_> = self.by_key.values().filter(|entry| gives_way(entry)).collect();
            idle.sort_by_cached_key(|entry| entry.idle(now));
            self.idle = idle.into_iter().map(Arc::downgrade).collect();
            self.next_search = now.boot.saturating_add(SEARCH_EVERY);
        }
    }

    /// Takes `entry` out, unless another one took its place.
    pub(crate) fn remove(&mut self, entry: &Arc<Entry>) {
        let spec = &entry.spec;
        if !self.by_key.get(&spec.key).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            return;
        }
        self.by_key.remove(&spec.key);
        self.in_order.remove(&place(&entry.spec));
        let profile = spec.target.as_ref().map(|target| &target.profile);
        if let Some(name) = profile
            && let Some(entries) = self.by_profile.get_mut(name)
        {
            entries.retain(|found| !Arc::ptr_eq(found, entry));
            if entries.is_empty() {
                self.by_profile.remove(name);
            }
        }
    }

    /// Every entry that `selector` selects. Those that no caller waits for or watches are taken out of the map.
    pub(crate) fn take_out(&mut self, selector: Selector<'_>) -> Vec<Arc<Entry>> {
        let entries = self.after(selector, None, usize::MAX);
        // Interest grows under the lock that protects the map, so who is not busy now is not found by anyone later.
        for entry in &entries {
            entry.leaves.store(entry.interest.load(Ordering::Relaxed) == 0, Ordering::Relaxed);
        }
        let stays = |entry: &Arc<Entry>| !entry.leaves.load(Ordering::Relaxed);
        if entries.len() == self.len() {
            // Few of them stay, and to put those back is quicker than to take the others out.
            self.by_key.clear();
            self.in_order.clear();
            self.by_profile.clear();
            entries.iter().filter(|entry| stays(entry)).for_each(|entry| self.insert(entry));
            return entries;
        }
        self.by_key.retain(|_, entry| stays(entry));
        self.in_order.retain(|_, entry| stays(entry));
        self.by_profile.retain(|_, entries| {
            entries.retain(stays);
            !entries.is_empty()
        });
        entries
    }

    /// At most `count` of the entries that `selector` selects and that follow `after` in the order.
    pub(crate) fn after(
        &self,
        selector: Selector<'_>,
        after: Option<&Place>,
        count: usize,
    ) -> Vec<Arc<Entry>> {
        let first = |name: &str| (Arc::from(name), PluginKey([0; 32]));
        let start = match (after, selector) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Selector::Provider(provider)) => Bound::Included(first(provider)),
            (None, _) => Bound::Unbounded,
        };
        let entries = self.in_order.range((start, Bound::Unbounded)).map(|(_, entry)| entry);
        let is_over =
            |entry: &Entry| matches!(selector, Selector::Provider(_)) && !selector.selects(&entry.spec);
        let entries = entries.take_while(|entry| !is_over(entry));
        let selected = entries.filter(|entry| selector.selects(&entry.spec));
        selected.take(count).map(Arc::clone).collect()
    }

    /// The entries of one profile.
    pub(crate) fn of_profile(&self, profile: &ProfileName) -> &[Arc<Entry>] {
        self.by_profile.get(profile).map_or(&[], Vec::as_slice)
    }

    /// The entries of each profile.
    pub(crate) fn profiles(&self) -> impl Iterator<Item = &Vec<Arc<Entry>>> {
        self.by_profile.values()
    }
}

/// Where the entry of `spec` is in the order.
pub(crate) fn place(spec: &PluginSpec) -> Place {
    (Arc::clone(&spec.provider.name), spec.key)
}
