//! All entries, by key, by provider and key, and by ClusterProfile.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    ops::Bound,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use super::{
    Selector,
    entry::{Interest, KeyEntry},
    policy::EVICTABLE_AFTER,
};
use crate::{
    clock::Now,
    plugin::{KeyHasher, PluginKey, PluginSpec, ProfileName, Retirement},
};

/// The shortest time between two searches of a full cache for idle entries.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// Up to so many entries are removed from the maps one by one.
const FEW: usize = 16;

/// The position of a key in the list: its provider's name, then the key.
pub type ListPosition = (Arc<str>, PluginKey);

/// All entries. Every map has the same ones.
#[derive(Debug, Default)]
pub(crate) struct KeyEntries {
    by_key: HashMap<PluginKey, Arc<KeyEntry>, BuildHasherDefault<KeyHasher>>,
    in_order: BTreeMap<ListPosition, Arc<KeyEntry>>,
    by_profile: HashMap<ProfileName, Vec<Arc<KeyEntry>>>,
    /// The entries that were idle at the last search, the one that was idle for the longest time last.
    idle: Vec<Weak<KeyEntry>>,
    /// Time since boot before which there is no further search.
    next_search: Duration,
}

impl KeyEntries {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &PluginKey) -> Option<&Arc<KeyEntry>> {
        self.by_key.get(key)
    }

    /// The entry of `spec`, made if there is none; `None`: there are `limit` entries, and none is idle.
    pub(crate) fn enter(&mut self, spec: PluginSpec, limit: usize, now: Now) -> Option<Interest> {
        if let Some(entry) = self.by_key.get(&spec.key) {
            entry.touch(now);
            return Some(Interest::new(entry));
        }
        if self.len() >= limit {
            let idle = self.find_idle(now)?;
            self.remove(&idle);
        }
        let entry = Arc::new(KeyEntry::new(Arc::new(spec), now));
        self.insert(&entry);
        Some(Interest::new(&entry))
    }

    fn insert(&mut self, entry: &Arc<KeyEntry>) {
        let spec = &entry.spec;
        self.by_key.insert(spec.key, Arc::clone(entry));
        self.in_order.insert(position(spec), Arc::clone(entry));
        if let Some(target) = &spec.target {
            self.by_profile.entry(target.profile.clone()).or_default().push(Arc::clone(entry));
        }
    }

    /// The entry that was idle for the longest time. One search serves many requests, so that a request for room is cheap
    /// when every entry is in use.
    fn find_idle(&mut self, now: Now) -> Option<Arc<KeyEntry>> {
        let is_idle = |entry: &Arc<KeyEntry>| entry.idle(now) >= EVICTABLE_AFTER && !entry.is_busy();
        loop {
            while let Some(idle) = self.idle.pop() {
                let idle = idle.upgrade().filter(&is_idle);
                let is_found = |entry: &Arc<KeyEntry>| {
                    self.by_key.get(&entry.spec.key).is_some_and(|found| Arc::ptr_eq(found, entry))
                };
                if let Some(entry) = idle.filter(is_found) {
                    return Some(entry);
                }
            }
            if now.boot < self.next_search {
                return None;
            }
            let mut idle: Vec<_> = self.by_key.values().filter(|entry| is_idle(entry)).collect();
            idle.sort_by_cached_key(|entry| entry.idle(now));
            self.idle = idle.into_iter().map(Arc::downgrade).collect();
            self.next_search = now.boot.saturating_add(SEARCH_EVERY);
        }
    }

    /// Removes `entry`, unless another entry has its key by now.
    pub(crate) fn remove(&mut self, entry: &Arc<KeyEntry>) {
        let spec = &entry.spec;
        if !self.by_key.get(&spec.key).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            return;
        }
        self.by_key.remove(&spec.key);
        self.in_order.remove(&position(spec));
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

    /// The selected entries. Those without interest are removed from the maps.
    pub(crate) fn take_out(&mut self, selector: &Selector) -> Vec<Arc<KeyEntry>> {
        let entries = self.select(selector, None, usize::MAX);
        // Interest grows only under the lock of the maps, so an entry without interest is not found by a request later.
        for entry in &entries {
            entry.leaves.store(entry.interest.load(Ordering::Relaxed) == 0, Ordering::Relaxed);
        }
        let stays = |entry: &Arc<KeyEntry>| !entry.leaves.load(Ordering::Relaxed);
        if entries.len() == self.len() {
            // Few entries stay, and inserting those again is faster than removing the others.
            self.by_key.clear();
            self.in_order.clear();
            self.by_profile.clear();
            entries.iter().filter(|entry| stays(entry)).for_each(|entry| self.insert(entry));
        } else if entries.len() <= FEW {
            entries.iter().filter(|entry| !stays(entry)).for_each(|entry| self.remove(entry));
        } else {
            self.by_key.retain(|_, entry| stays(entry));
            self.in_order.retain(|_, entry| stays(entry));
            self.by_profile.retain(|_, entries| {
                entries.retain(stays);
                !entries.is_empty()
            });
        }
        entries
    }

    /// Removes the entries of providers that are no longer in force.
    pub(crate) fn take_retired(&mut self) -> Vec<(Arc<KeyEntry>, Retirement)> {
        let retirement = |entry: &Arc<KeyEntry>| {
            entry.spec.provider.standing.retirement().map(|why| (Arc::clone(entry), why))
        };
        let retired: Vec<_> = self.by_key.values().filter_map(retirement).collect();
        for (entry, _) in &retired {
            self.remove(entry);
        }
        retired
    }

    /// At most `count` of the selected entries that follow `after`, in the order of [`ListPosition`].
    pub(crate) fn select(
        &self,
        selector: &Selector,
        after: Option<&ListPosition>,
        count: usize,
    ) -> Vec<Arc<KeyEntry>> {
        match selector {
            Selector::All => self.after(None, after, count),
            Selector::Provider(name) => self.after(Some(name), after, count),
            Selector::ClusterProfile(name) => {
                page(self.of_profile(name).iter().map(|entry| (position(&entry.spec), entry)), after, count)
            }
            Selector::Key(prefix) => {
                let matching = self.by_key.iter().filter(|(key, _)| prefix.matches(key));
                page(matching.map(|(_, entry)| (position(&entry.spec), entry)), after, count)
            }
        }
    }

    /// At most `count` entries that follow `after`, of one provider or of all.
    pub(crate) fn after(
        &self,
        provider: Option<&str>,
        after: Option<&ListPosition>,
        count: usize,
    ) -> Vec<Arc<KeyEntry>> {
        let first = |name: &str| (Arc::from(name), PluginKey([0; 32]));
        let start = match (after, provider) {
            (Some(after), Some(provider)) if *after.0 < *provider => Bound::Included(first(provider)),
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(provider)) => Bound::Included(first(provider)),
            (None, None) => Bound::Unbounded,
        };
        let entries = self.in_order.range((start, Bound::Unbounded));
        let wanted = entries.take_while(|((name, _), _)| provider.is_none_or(|provider| **name == *provider));
        wanted.take(count).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// The entries of one profile.
    pub(crate) fn of_profile(&self, profile: &ProfileName) -> &[Arc<KeyEntry>] {
        self.by_profile.get(profile).map_or(&[], Vec::as_slice)
    }

    /// The entries of each profile.
    pub(crate) fn profiles(&self) -> impl Iterator<Item = &Vec<Arc<KeyEntry>>> {
        self.by_profile.values()
    }
}

/// The position of the entry of `spec`.
pub(crate) fn position(spec: &PluginSpec) -> ListPosition {
    (Arc::clone(&spec.provider.name), spec.key)
}

/// At most `count` of a few `entries` that follow `after`, in order.
fn page<'a>(
    entries: impl Iterator<Item = (ListPosition, &'a Arc<KeyEntry>)>,
    after: Option<&ListPosition>,
    count: usize,
) -> Vec<Arc<KeyEntry>> {
    let mut page: Vec<_> =
        entries.filter(|(position, _)| after.is_none_or(|after| position > after)).collect();
    page.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    page.into_iter().take(count).map(|(_, entry)| Arc::clone(entry)).collect()
}
