//! All entries, by key, by provider and key, and by ClusterProfile.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    ops::Bound,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use super::{
    EntryLimits, Selector,
    entry::{Interest, KeyEntry},
    error::Room,
    makers::{Made, Makers, by_share, sent_bytes},
    policy::EVICTABLE_AFTER,
};
use crate::{
    clock::Now,
    plugin::{KeyHasher, PluginKey, PluginSpec, ProfileName, Retirement},
};

/// The shortest time between two searches of a full cache for entries that give way, if the first found less than one in
/// `WORTHWHILE`.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
const WORTHWHILE: usize = 64;
/// At least so many of the entries that a search found give way before the next search.
const AT_LEAST: usize = 16;
/// Up to so many entries are removed from the maps one by one.
const FEW: usize = 16;

/// The position of a key in the list: its provider's name, then the key.
pub type ListPosition = (Arc<str>, PluginKey);

/// All entries. Every map has the same ones.
#[derive(Debug)]
pub(crate) struct KeyEntries {
    pub(crate) limits: EntryLimits,
    by_key: HashMap<PluginKey, Arc<KeyEntry>, BuildHasherDefault<KeyHasher>>,
    in_order: BTreeMap<ListPosition, Arc<KeyEntry>>,
    by_profile: HashMap<ProfileName, Vec<Arc<KeyEntry>>>,
    makers: Makers,
    /// The entries that could give way at the last search, the one that goes first last.
    spare: Candidates,
    /// The entries that were idle at the last search, the one that was idle for the longest time last.
    idle: Candidates,
    /// The entries that gave way. [`forget`](KeyEntry::forget) them when the lock is free.
    pub(crate) displaced: Vec<Arc<KeyEntry>>,
}

/// Entries that were found by a search. One search serves many requests, so that a request for room is cheap when every
/// entry is in use.
#[derive(Debug, Default)]
struct Candidates {
    found: Vec<Weak<KeyEntry>>,
    /// Time since boot before which there is no further search.
    next_search: Duration,
}

impl KeyEntries {
    pub(crate) fn new(limits: EntryLimits) -> Self {
        Self {
            limits,
            by_key: HashMap::default(),
            in_order: BTreeMap::new(),
            by_profile: HashMap::new(),
            makers: Makers::default(),
            spare: Candidates::default(),
            idle: Candidates::default(),
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

    /// Makes room for one entry.
    fn make_room(&mut self, total: usize, now: Now) -> Result<(), Room> {
        if self.len() < total {
            return Ok(());
        }
        if let Some(spare) = self.find_spare(now) {
            self.displace(spare);
            return Ok(());
        }
        let idle = self.find_idle(now).ok_or(Room::Entries { limit: total })?;
        self.remove(&idle);
        Ok(())
    }

    fn insert(&mut self, entry: &Arc<KeyEntry>) {
        let spec = &entry.spec;
        self.by_key.insert(spec.key, Arc::clone(entry));
        self.in_order.insert(position(spec), Arc::clone(entry));
        if let Some(target) = &spec.target {
            self.by_profile.entry(target.profile.clone()).or_default().push(Arc::clone(entry));
        }
    }

    /// Removes an entry that `process` made, to make room for its bytes.
    fn displace_own(&mut self, process: u64, now: Now) -> Option<()> {
        let is_own =
            |entry: &&Arc<KeyEntry>| entry.made.as_ref().is_some_and(|made| made.process() == process);
        let own = self.by_key.values().filter(|entry| is_own(entry) && entry.may_give_way());
        let oldest = own.max_by_key(|entry| entry.idle(now)).cloned()?;
        self.displace(oldest);
        Some(())
    }

    fn displace(&mut self, entry: Arc<KeyEntry>) {
        self.remove(&entry);
        entry.made.iter().for_each(Made::release);
        self.displaced.push(entry);
    }

    /// The entry that a caller made and that gives way first.
    fn find_spare(&mut self, now: Now) -> Option<Arc<KeyEntry>> {
        let mut spare = std::mem::take(&mut self.spare);
        let search = || {
            let mut entries: Vec<_> = self.by_key.values().filter(|entry| entry.may_give_way()).collect();
            entries.sort_by_cached_key(|entry| entry.idle(now));
            by_share(entries, |entry| entry.made.as_ref().map_or((0, 0), |made| (made.process(), made.uid())))
                .into_iter()
                .map(Arc::downgrade)
                .collect()
        };
        let found = spare.find(now, |entry| self.holds(entry) && entry.may_give_way(), search, self.len());
        self.spare = spare;
        found
    }

    /// The entry that was idle for the longest time.
    fn find_idle(&mut self, now: Now) -> Option<Arc<KeyEntry>> {
        let is_idle = |entry: &KeyEntry| entry.idle(now) >= EVICTABLE_AFTER && !entry.is_busy();
        let mut idle = std::mem::take(&mut self.idle);
        let search = || {
            let mut entries: Vec<_> = self.by_key.values().filter(|entry| is_idle(entry)).collect();
            entries.sort_by_cached_key(|entry| entry.idle(now));
            entries.into_iter().map(Arc::downgrade).collect()
        };
        let found = idle.find(now, |entry| self.holds(entry) && is_idle(entry), search, self.len());
        self.idle = idle;
        found
    }

    fn holds(&self, entry: &Arc<KeyEntry>) -> bool {
        self.by_key.get(&entry.spec.key).is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    /// Removes `entry`, unless another entry has its key by now.
    pub(crate) fn remove(&mut self, entry: &Arc<KeyEntry>) {
        if !self.holds(entry) {
            return;
        }
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

impl Candidates {
    /// The last candidate that `is_fit`, after a search if there is none. Candidates that are not fit are forgotten.
    fn find(
        &mut self,
        now: Now,
        is_fit: impl Fn(&Arc<KeyEntry>) -> bool,
        search: impl FnOnce() -> Vec<Weak<KeyEntry>>,
        entries: usize,
    ) -> Option<Arc<KeyEntry>> {
        let pop = |found: &mut Vec<Weak<KeyEntry>>| {
            std::iter::from_fn(|| found.pop()).find_map(|entry| entry.upgrade().filter(&is_fit))
        };
        if let Some(entry) = pop(&mut self.found) {
            return Some(entry);
        }
        if now.boot < self.next_search {
            return None;
        }
        let found = search();
        // A search that finds little for its costs is not repeated at once.
        if found.is_empty() || found.len() < entries / WORTHWHILE {
            self.next_search = now.boot.saturating_add(SEARCH_EVERY);
        }
        // The rest is found again: by then, others may have to give way first.
        let later = found.len() - found.len().div_ceil(4).max(AT_LEAST).min(found.len());
        self.found = found.into_iter().skip(later).collect();
        pop(&mut self.found)
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
