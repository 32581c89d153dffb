//! All entries, by key, by provider and key, and by ClusterProfile; their bounds, in entries and in bytes, and which entry
//! gives way at one.
//!
//! What the variables or the cluster of a caller select belongs to the uid of that caller. There can be any number of such
//! entries, so the uids share the room: the least recently used idle entry of the uid with the most gives way, and a uid
//! below its fair part loses nothing. All other entries are the broker's: the configuration limits their number, and one
//! gives way only if none of a uid does, after a minute without a request.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, DefaultHasher},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use super::{
    entry::{KeyEntry, NOT_LISTED, Party},
    error::Full,
    request::Selector,
};
use credbroker_observe::clock::Now;
use credbroker_plugin::{Identities, PluginKey, PluginSpec, ProfileName};

/// An entry of the broker gives way only if there was no request for it in this time.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_secs(60);
/// Entries that are looked at for the least recently used one. It bounds the time under the lock.
const LOOKED_AT: usize = 32;

/// How much the cache may hold.
#[derive(Clone, Copy, Debug)]
pub struct EntryLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes of their credentials, and of the variables and clusters of callers that select them.
    pub bytes: usize,
}

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
    pub identities: Arc<Identities>,
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
            identities: Arc::default(),
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
        let mut entry = KeyEntry::new(spec, peer, now);
        entry.identity = self.identities.of(&entry.spec.provider, &entry.spec.caller_env);
        let entry = Arc::new(entry);
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
            Selector::Definition(provider, definition) => {
                let mut entries = self.after(Some(provider), after, usize::MAX);
                entries.retain(|entry| {
                    let found = entry.spec.provider.definition.as_ref();
                    found.is_some_and(|found| found.digest == *definition)
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

/// The entries in the map, by whose they are.
#[derive(Debug)]
struct Bounds {
    limits: EntryLimits,
    total: Held,
    parties: HashMap<Party, Held>,
    /// Those that are idle, as listed. Answers from memory do not change the order until an entry has to give way.
    idle: BTreeMap<(Party, u64, PluginKey), Arc<KeyEntry>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    entries: usize,
    bytes: usize,
}

impl Bounds {
    fn new(limits: EntryLimits) -> Self {
        Self { limits, total: Held::default(), parties: HashMap::new(), idle: BTreeMap::new() }
    }

    fn add(&mut self, entry: &KeyEntry) {
        entry.is_in_map.store(true, Ordering::Relaxed);
        self.count(entry.party, |held| {
            held.entries += 1;
            held.bytes += entry.bytes();
        });
    }

    fn remove(&mut self, entry: &KeyEntry) {
        entry.is_in_map.store(false, Ordering::Relaxed);
        self.unlist(entry);
        self.count(entry.party, |held| {
            held.entries -= 1;
            held.bytes -= entry.bytes();
        });
        self.parties.retain(|_, held| held.entries > 0);
    }

    fn resize(&mut self, entry: &KeyEntry, bytes: usize) {
        let before = entry.credential.swap(bytes, Ordering::Relaxed);
        if entry.is_in_map() {
            self.count(entry.party, |held| held.bytes = held.bytes + bytes - before);
        }
    }

    fn enter(&mut self, entry: &KeyEntry) {
        if entry.uses.fetch_add(1, Ordering::Relaxed) == 0 {
            self.unlist(entry);
        }
    }

    fn leave(&mut self, entry: &Arc<KeyEntry>) {
        if entry.uses.fetch_sub(1, Ordering::Relaxed) == 1 && entry.is_in_map() {
            self.list(Arc::clone(entry));
        }
    }

    /// Lists an entry as idle since its last request.
    fn list(&mut self, entry: Arc<KeyEntry>) {
        let used = entry.last_used.load(Ordering::Relaxed);
        entry.listed.store(used, Ordering::Relaxed);
        self.idle.insert((entry.party, used, entry.spec.key), entry);
    }

    fn unlist(&mut self, entry: &KeyEntry) {
        let listed = entry.listed.swap(NOT_LISTED, Ordering::Relaxed);
        self.idle.remove(&(entry.party, listed, entry.spec.key));
    }

    fn exceeded(&self) -> Option<Full> {
        let EntryLimits { entries, bytes } = self.limits;
        if self.total.entries > entries {
            return Some(Full::Entries(entries));
        }
        (self.total.bytes > bytes).then_some(Full::Bytes(bytes))
    }

    /// The entry that gives way at `full`, for a new one of `newcomer`, which counts already.
    fn victim(&mut self, full: Full, newcomer: Party, now: Now) -> Option<Arc<KeyEntry>> {
        let (limit, held): (_, fn(&Held) -> usize) = match full {
            Full::Entries(limit) => (limit, |held| held.entries),
            Full::Bytes(limit) => (limit, |held| held.bytes),
        };
        // What the broker's entries leave is shared by the uids.
        let of_broker = self.parties.get(&None).map_or(0, held);
        let room = limit.saturating_sub(of_broker);
        let uids = self.parties.keys().flatten().count();
        let has_more = |party: Party, held: usize| party == newcomer || held.saturating_mul(uids) > room;
        let mut uids: Vec<_> = self
            .parties
            .iter()
            .filter(|(party, _)| party.is_some())
            .map(|(party, all)| (held(all), *party == newcomer, *party))
            .filter(|(held, _, party)| has_more(*party, *held))
            .collect();
        uids.sort_unstable();
        let of_uids = uids.into_iter().rev().find_map(|(.., uid)| self.oldest(uid));
        of_uids.or_else(|| self.oldest(None).filter(|entry| entry.idle(now) >= EVICTABLE_AFTER))
    }

    /// The least recently used idle entry of `party` whose plugin is not running.
    fn oldest(&mut self, party: Party) -> Option<Arc<KeyEntry>> {
        let (mut touched, mut oldest) = (Vec::new(), None::<(u64, &Arc<KeyEntry>)>);
        let idle = self.idle.range((party, 0, PluginKey([0; 32]))..);
        let idle = idle.take_while(|((of, ..), _)| *of == party);
        for ((_, listed, _), entry) in idle.filter(|(_, entry)| !entry.is_running()) {
            let used = entry.last_used.load(Ordering::Relaxed);
            if oldest.is_none_or(|(at, _)| used < at) {
                oldest = Some((used, entry));
            }
            // All that follow were used after this one.
            if used <= *listed || touched.len() == LOOKED_AT {
                break;
            }
            touched.push(Arc::clone(entry));
        }
        let oldest = oldest.map(|(_, entry)| Arc::clone(entry));
        for entry in touched {
            self.unlist(&entry);
            self.list(entry);
        }
        oldest
    }

    fn count(&mut self, party: Party, change: impl Fn(&mut Held)) {
        change(&mut self.total);
        change(self.parties.entry(party).or_default());
    }
}

#[cfg(test)]
mod tests;
