//! All entries, by key, by provider and key, and by ClusterProfile.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, DefaultHasher},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    bounds::{Bounds, EntryLimits},
    entry::{KeyEntry, Party},
    error::Full,
    request::Selector,
};
use credbroker_observe::clock::Now;
use credbroker_plugin::{PluginKey, PluginSpec, ProfileName};

/// The position of a key in the list: its provider's name, then the key.
pub type ListPosition = (Arc<str>, PluginKey);

/// All entries. Every map has the same ones.
#[derive(Debug)]
pub(crate) struct KeyEntries {
    /// Without a random state: a seed of the simulation always has the same order. Keys are digests, which no one chooses.
    by_key: HashMap<PluginKey, Arc<KeyEntry>, BuildHasherDefault<DefaultHasher>>,
    in_order: BTreeMap<ListPosition, Arc<KeyEntry>>,
    by_profile: HashMap<ProfileName, Vec<Arc<KeyEntry>>>,
    bounds: Bounds,
    /// The entries that gave way. [`forget`](KeyEntry::forget) them when the lock is free.
    pub displaced: Vec<Arc<KeyEntry>>,
}

impl KeyEntries {
    pub(crate) fn new(limits: EntryLimits) -> Self {
        Self {
            by_key: HashMap::default(),
            in_order: BTreeMap::new(),
            by_profile: HashMap::new(),
            bounds: Bounds::new(limits),
            displaced: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &PluginKey) -> Option<&Arc<KeyEntry>> {
        self.by_key.get(key)
    }

    /// The entry of `spec`, made if there is none and there is room, for a caller in `peer`, who uses it from now on.
    pub(crate) fn enter(&mut self, spec: PluginSpec, peer: u64, now: Now) -> Result<Arc<KeyEntry>, Full> {
        if let Some(entry) = self.by_key.get(&spec.key) {
            entry.touch(peer, now);
            self.bounds.enter(entry);
            return Ok(Arc::clone(entry));
        }
        let entry = Arc::new(KeyEntry::new(spec, peer, now));
        let spec = &entry.spec;
        self.bounds.add(&entry);
        self.bounds.enter(&entry);
        if let Err(full) = self.make_room(entry.party, now) {
            self.bounds.remove(&entry);
            return Err(full);
        }
        self.by_key.insert(spec.key, Arc::clone(&entry));
        self.in_order.insert(position(spec), Arc::clone(&entry));
        if let Some(target) = &spec.target {
            self.by_profile.entry(target.profile.clone()).or_default().push(Arc::clone(&entry));
        }
        Ok(entry)
    }

    /// Removes idle entries until the others are within the bounds, for something new of `newcomer`.
    fn make_room(&mut self, newcomer: Party, now: Now) -> Result<(), Full> {
        while let Some(full) = self.bounds.exceeded() {
            let victim = self.bounds.victim(full, newcomer, now).ok_or(full)?;
            self.remove(&victim);
            self.displaced.push(victim);
        }
        Ok(())
    }

    /// Sets the bounds. What is held beyond them and in use stays until it is idle.
    pub(crate) fn set_limits(&mut self, limits: EntryLimits, now: Now) {
        self.bounds.limits = limits;
        let _full = self.make_room(None, now);
    }

    /// Counts the bytes of the credential of `entry`, which has changed. Idle entries give way for it.
    pub(crate) fn resize(&mut self, entry: &KeyEntry, now: Now) {
        let bytes = entry.cell.borrow().current.as_ref().map_or(0, |held| held.issued.encoded.frame.len());
        self.bounds.resize(entry, bytes);
        let _full = self.make_room(entry.party, now);
    }

    pub(crate) fn remove_all(&mut self, entries: &[Arc<KeyEntry>]) {
        for entry in entries {
            self.remove(entry);
        }
    }

    /// Removes `entry`, if it is in the map.
    pub(crate) fn remove(&mut self, entry: &Arc<KeyEntry>) {
        if !entry.is_in_map() {
            return;
        }
        let spec = &entry.spec;
        self.bounds.remove(entry);
        self.by_key.remove(&spec.key);
        self.in_order.remove(&position(spec));
        if let Some(target) = &spec.target
            && let Some(entries) = self.by_profile.get_mut(&target.profile)
        {
            entries.retain(|found| !Arc::ptr_eq(found, entry));
            if entries.is_empty() {
                self.by_profile.remove(&target.profile);
            }
        }
    }

    /// At most `count` of the selected entries that follow `after`, in the order of [`ListPosition`].
    pub(crate) fn select(
        &self,
        selector: &Selector,
        after: Option<&ListPosition>,
        count: usize,
    ) -> Vec<Arc<KeyEntry>> {
        let mut found: Vec<_> = match selector {
            Selector::All => return self.after(None, after, count),
            Selector::Provider(name) => return self.after(Some(name), after, count),
            Selector::Definition { provider, definition } => {
                let mut entries = self.after(Some(provider), after, usize::MAX);
                entries.retain(|entry| {
                    let found = entry.spec.provider.definition.as_ref();
                    found.is_some_and(|found| found.digest() == &**definition)
                });
                entries
            }
            Selector::ClusterProfile(name) => self.of_profile(name).to_vec(),
            Selector::Keys(keys) => keys.iter().filter_map(|key| self.by_key.get(key)).cloned().collect(),
            Selector::Key(prefix) => self.matching(|entry| prefix.matches(&entry.spec.key)),
        };
        found.retain(|entry| after.is_none_or(|after| position(&entry.spec) > *after));
        found.sort_by_cached_key(|entry| position(&entry.spec));
        found.truncate(count);
        found
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

    /// The selected entries, which are used from now on.
    pub(crate) fn hold(&mut self, selector: &Selector) -> Vec<Arc<KeyEntry>> {
        let held = self.select(selector, None, usize::MAX);
        for entry in &held {
            self.bounds.enter(entry);
        }
        held
    }

    pub(crate) fn of_profile(&self, profile: &ProfileName) -> &[Arc<KeyEntry>] {
        self.by_profile.get(profile).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn matching(&self, is_wanted: impl Fn(&KeyEntry) -> bool) -> Vec<Arc<KeyEntry>> {
        self.by_key.values().filter(|entry| is_wanted(entry)).cloned().collect()
    }
}

pub(crate) fn position(spec: &PluginSpec) -> ListPosition {
    (Arc::clone(&spec.provider.name), spec.key)
}

/// The maps are consistent whenever the lock is free, so a poisoned lock is still usable.
pub(crate) fn lock(entries: &Mutex<KeyEntries>) -> MutexGuard<'_, KeyEntries> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an entry in the map while a caller waits or watches. Must not be dropped under the lock.
#[derive(Debug)]
pub(crate) struct Interest {
    pub entry: Arc<KeyEntry>,
    pub entries: Arc<Mutex<KeyEntries>>,
}

impl Drop for Interest {
    fn drop(&mut self) {
        lock(&self.entries).bounds.leave(&self.entry);
    }
}
