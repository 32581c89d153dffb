//! All entries, by key, by provider and key, and by ClusterProfile.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    ops::Bound,
    sync::{Arc, Mutex, atomic::Ordering},
};

use super::{
    bounds::{Bounds, EntryLimits, Full, Party, Share},
    entry::{Interest, KeyEntry, lock},
    request::Selector,
};
use credbroker_observe::clock::Now;
use credbroker_plugin::{KeyHasher, PluginKey, PluginSpec, ProfileName, Retirement};

/// The position of a key in the list: its provider's name, then the key.
pub type ListPosition = (Arc<str>, PluginKey);

/// All entries. Every map has the same ones.
#[derive(Debug)]
pub(crate) struct KeyEntries {
    by_key: HashMap<PluginKey, Arc<KeyEntry>, BuildHasherDefault<KeyHasher>>,
    in_order: BTreeMap<ListPosition, Arc<KeyEntry>>,
    by_profile: HashMap<ProfileName, Vec<Arc<KeyEntry>>>,
    bounds: Arc<Mutex<Bounds>>,
    /// The entries that gave way. [`forget`](KeyEntry::forget) them when the lock is free.
    pub displaced: Vec<Arc<KeyEntry>>,
}

impl KeyEntries {
    pub(crate) fn new(limits: EntryLimits) -> Self {
        Self {
            by_key: HashMap::default(),
            in_order: BTreeMap::new(),
            by_profile: HashMap::new(),
            bounds: Arc::new(Mutex::new(Bounds::new(limits))),
            displaced: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &PluginKey) -> Option<&Arc<KeyEntry>> {
        self.by_key.get(key)
    }

    /// The entry of `spec`, made if there is none, for a caller in `peer`.
    ///
    /// # Errors
    ///
    /// There is no room, and no entry gives way.
    pub(crate) fn enter(&mut self, spec: PluginSpec, peer: u64, now: Now) -> Result<Interest, Full> {
        if let Some(entry) = self.by_key.get(&spec.key) {
            entry.share.touch(peer, now);
            return Ok(Interest::new(entry));
        }
        let share = Share::new(&spec, peer, now);
        lock(&self.bounds).add(&share);
        let entry = Arc::new(KeyEntry::new(spec, share, &self.bounds));
        let interest = Interest::new(&entry);
        if let Err(full) = self.make_room(entry.share.party, now) {
            lock(&self.bounds).remove(entry.spec.key, &entry.share);
            return Err(full);
        }
        self.insert(&entry);
        Ok(interest)
    }

    /// Removes idle entries until the others are within the bounds, for something new of `newcomer`.
    ///
    /// # Errors
    ///
    /// A bound is exceeded, and no entry gives way.
    pub(crate) fn make_room(&mut self, newcomer: Party, now: Now) -> Result<(), Full> {
        loop {
            let victim = {
                let mut bounds = lock(&self.bounds);
                let Some(full) = bounds.exceeded() else { return Ok(()) };
                let idle = |key: &PluginKey| {
                    self.by_key.get(key).filter(|entry| !entry.is_running()).map(|entry| &entry.share)
                };
                let victim = bounds.victim(full, newcomer, now, idle);
                victim.and_then(|key| self.by_key.get(&key)).cloned().ok_or(full)?
            };
            self.remove(&victim);
            self.displaced.push(victim);
        }
    }

    /// Sets the bounds. What is held beyond them and in use stays until it is idle.
    pub(crate) fn set_limits(&mut self, limits: EntryLimits, now: Now) {
        lock(&self.bounds).limits = limits;
        // Full: the next entry finds that too.
        let _full = self.make_room(None, now);
    }

    fn insert(&mut self, entry: &Arc<KeyEntry>) {
        let spec = &entry.spec;
        self.by_key.insert(spec.key, Arc::clone(entry));
        self.in_order.insert(position(spec), Arc::clone(entry));
        if let Some(target) = &spec.target {
            self.by_profile.entry(target.profile.clone()).or_default().push(Arc::clone(entry));
        }
    }

    fn holds(&self, entry: &Arc<KeyEntry>) -> bool {
        self.by_key.get(&entry.spec.key).is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    /// Removes `entry`, unless another entry has its key by now.
    pub(crate) fn remove(&mut self, entry: &Arc<KeyEntry>) {
        if !self.holds(entry) {
            return;
        }
        entry.leaves.store(true, Ordering::Relaxed);
        let spec = &entry.spec;
        lock(&self.bounds).remove(spec.key, &entry.share);
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

    /// Removes those of `entries` without interest. Interest grows only under the lock of the maps, so a request does not
    /// find them later.
    pub(crate) fn take_out(&mut self, entries: &[Arc<KeyEntry>]) {
        entries.iter().filter(|entry| !entry.share.is_in_use()).for_each(|entry| self.remove(entry));
    }

    /// The entries of providers that are shared with other users than the broker's own.
    pub(crate) fn shared(&self) -> Vec<Arc<KeyEntry>> {
        let is_shared = |entry: &&Arc<KeyEntry>| entry.spec.provider.state.is_shared();
        self.by_key.values().filter(is_shared).cloned().collect()
    }

    /// Removes the entries of providers that are no longer in force.
    pub(crate) fn take_retired(&mut self) -> Vec<(Arc<KeyEntry>, Retirement)> {
        let retirement = |entry: &Arc<KeyEntry>| {
            entry.spec.provider.state.retirement().map(|why| (Arc::clone(entry), why))
        };
        let retired: Vec<_> = self.by_key.values().filter_map(retirement).collect();
        for (entry, _) in &retired {
            self.remove(entry);
        }
        retired
    }
}

/// The position of the entry of `spec`.
pub(crate) fn position(spec: &PluginSpec) -> ListPosition {
    (Arc::clone(&spec.provider.name), spec.key)
}

impl KeyEntries {
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
            Selector::Definition { provider, definition } => {
                let mut entries = self.after(Some(provider), after, usize::MAX);
                entries.retain(|entry| {
                    let found = entry.spec.provider.definition.as_ref();
                    found.is_some_and(|found| found.digest() == &**definition)
                });
                entries.truncate(count);
                entries
            }
            Selector::ClusterProfile(name) => {
                page(self.of_profile(name).iter().map(|entry| (position(&entry.spec), entry)), after, count)
            }
            Selector::Keys(keys) => {
                let found = keys.iter().filter_map(|key| self.by_key.get(key));
                page(found.map(|entry| (position(&entry.spec), entry)), after, count)
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
