//! All entries, by key, by provider and key, and by ClusterProfile.

mod room;

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    ops::Bound,
    sync::{Arc, atomic::Ordering},
};

use super::{
    EntryLimits, Selector,
    entry::{Interest, KeyEntry},
    full::Room,
    makers::{Makers, sent_bytes},
};
use credbroker_observe::clock::Now;
use credbroker_plugin::{KeyHasher, PluginKey, PluginSpec, ProfileName, Retirement};

/// Up to so many entries are removed from the maps one by one.
const FEW: usize = 16;

/// The position of a key in the list: its provider's name, then the key.
pub type ListPosition = (Arc<str>, PluginKey);

/// All entries. Every map has the same ones.
#[derive(Debug)]
pub(crate) struct KeyEntries {
    pub limits: EntryLimits,
    by_key: HashMap<PluginKey, Arc<KeyEntry>, BuildHasherDefault<KeyHasher>>,
    in_order: BTreeMap<ListPosition, Arc<KeyEntry>>,
    by_profile: HashMap<ProfileName, Vec<Arc<KeyEntry>>>,
    makers: Makers,
    /// The entries that could give way at the last search, the one that goes first last.
    spare: room::Candidates,
    /// The entries that were idle at the last search, the one that was idle for the longest time last.
    idle: room::Candidates,
    /// The entries that gave way. [`forget`](KeyEntry::forget) them when the lock is free.
    pub displaced: Vec<Arc<KeyEntry>>,
}

impl KeyEntries {
    pub(crate) fn new(limits: EntryLimits) -> Self {
        Self {
            limits,
            by_key: HashMap::default(),
            in_order: BTreeMap::new(),
            by_profile: HashMap::new(),
            makers: Makers::default(),
            spare: room::Candidates::default(),
            idle: room::Candidates::default(),
            displaced: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &PluginKey) -> Option<&Arc<KeyEntry>> {
        self.by_key.get(key)
    }

    /// The entry of `spec`, made if there is none, for a caller in `process`; `None`: for the broker itself.
    ///
    /// # Errors
    ///
    /// There is no room, and no entry gives way.
    pub(crate) fn enter(
        &mut self,
        spec: PluginSpec,
        process: Option<u64>,
        now: Now,
    ) -> Result<Interest, Room> {
        let limits = self.limits;
        let found = self.by_key.get(&spec.key).cloned();
        let sent = process.zip(match &found {
            Some(entry) => entry.made.as_ref().filter(|_| !entry.is_in_use()).map(|_| 0),
            None => sent_bytes(&spec),
        });
        let maker = sent.map(|(process, bytes)| (self.makers.get(process), bytes));
        if let Some((maker, _)) = &maker {
            maker.check_use(&limits)?;
        }
        let entry = if let Some(entry) = found {
            entry.touch(now);
            entry
        } else {
            if let Some((maker, bytes)) = &maker {
                while let Err(full) = maker.check_bytes(*bytes, &limits) {
                    self.displace_own(maker.process(), now).ok_or(full)?;
                }
            }
            self.make_room(limits.total, now)?;
            let made = maker.clone().map(|(maker, bytes)| maker.makes(bytes));
            let entry = Arc::new(KeyEntry::new(Arc::new(spec), made, now));
            self.insert(&entry);
            entry
        };
        Ok(match maker {
            Some((maker, _)) => Interest::counted(&entry, maker.uses()),
            None => Interest::new(&entry),
        })
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

    /// The entries of providers that are shared with other users than the broker's own.
    pub(crate) fn shared(&self) -> Vec<Arc<KeyEntry>> {
        let is_shared = |entry: &&Arc<KeyEntry>| entry.spec.provider.standing.is_shared();
        self.by_key.values().filter(is_shared).cloned().collect()
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
