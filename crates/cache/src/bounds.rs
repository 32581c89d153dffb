//! The bounds of the cache, in entries and in bytes, and which entry gives way at one. Pure.
//!
//! What the variables or the cluster of a caller select belongs to the uid of that caller. There can be any number of such
//! entries, so the uids share the room: the least recently used idle entry of the uid with the most gives way, and a uid
//! below its fair part loses nothing. All other entries are the broker's: the configuration limits their number, and one
//! gives way only if none of a uid does, after a minute without a request.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    entry::{KeyEntry, NOT_LISTED, Party},
    error::Full,
};
use credbroker_observe::clock::Now;
use credbroker_plugin::PluginKey;

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

/// The entries in the map, by whose they are.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub limits: EntryLimits,
    total: Held,
    parties: HashMap<Party, Account>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    entries: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Account {
    held: Held,
    /// Those that are idle, as listed. Answers from memory do not change the order until an entry has to give way.
    idle: BTreeMap<(u64, PluginKey), Arc<KeyEntry>>,
}

impl Account {
    /// Lists an entry as idle since its last request.
    fn list(&mut self, entry: Arc<KeyEntry>) {
        let used = entry.last_used.load(Ordering::Relaxed);
        entry.listed.store(used, Ordering::Relaxed);
        self.idle.insert((used, entry.spec.key), entry);
    }

    fn unlist(&mut self, entry: &KeyEntry) {
        let listed = entry.listed.swap(NOT_LISTED, Ordering::Relaxed);
        self.idle.remove(&(listed, entry.spec.key));
    }
}

impl Bounds {
    pub(crate) fn new(limits: EntryLimits) -> Self {
        Self { limits, total: Held::default(), parties: HashMap::new() }
    }

    /// Counts a new entry.
    pub(crate) fn add(&mut self, entry: &KeyEntry) {
        entry.is_in_map.store(true, Ordering::Relaxed);
        self.count(entry.party, |held| {
            held.entries += 1;
            held.bytes += entry.bytes();
        });
    }

    /// An entry that is no longer in the map does not count.
    pub(crate) fn remove(&mut self, entry: &KeyEntry) {
        entry.is_in_map.store(false, Ordering::Relaxed);
        self.account(entry.party).unlist(entry);
        self.count(entry.party, |held| {
            held.entries -= 1;
            held.bytes -= entry.bytes();
        });
        if self.account(entry.party).held.entries == 0 {
            self.parties.remove(&entry.party);
        }
    }

    /// The credential of an entry has so many bytes now.
    pub(crate) fn resize(&mut self, entry: &KeyEntry, bytes: usize) {
        let before = entry.credential.swap(bytes, Ordering::Relaxed);
        if entry.is_in_map() {
            self.count(entry.party, |held| held.bytes = held.bytes + bytes - before);
        }
    }

    /// A caller waits or watches.
    pub(crate) fn enter(&mut self, entry: &KeyEntry) {
        if entry.uses.fetch_add(1, Ordering::Relaxed) == 0 {
            self.account(entry.party).unlist(entry);
        }
    }

    /// A caller has left.
    pub(crate) fn leave(&mut self, entry: &Arc<KeyEntry>) {
        if entry.uses.fetch_sub(1, Ordering::Relaxed) == 1 && entry.is_in_map() {
            self.account(entry.party).list(Arc::clone(entry));
        }
    }

    /// The bound that is exceeded.
    pub(crate) fn exceeded(&self) -> Option<Full> {
        let EntryLimits { entries, bytes } = self.limits;
        if self.total.entries > entries {
            return Some(Full::Entries { limit: entries });
        }
        (self.total.bytes > bytes).then_some(Full::Bytes { limit: bytes })
    }

    /// The entry that gives way at `full`, for a new one of `newcomer`, which counts already.
    pub(crate) fn victim(&mut self, full: Full, newcomer: Party, now: Now) -> Option<Arc<KeyEntry>> {
        let (limit, held): (_, fn(&Held) -> usize) = match full {
            Full::Entries { limit } => (limit, |held| held.entries),
            Full::Bytes { limit } => (limit, |held| held.bytes),
        };
        // What the broker's entries leave is shared by the uids.
        let of_broker = self.parties.get(&None).map_or(0, |account| held(&account.held));
        let room = limit.saturating_sub(of_broker);
        let uids = self.parties.keys().flatten().count();
        let has_more = |party: Party, held: usize| party == newcomer || held.saturating_mul(uids) > room;
        let mut uids: Vec<_> = self
            .parties
            .iter()
            .filter(|(party, account)| party.is_some() && !account.idle.is_empty())
            .map(|(party, account)| (held(&account.held), *party == newcomer, *party))
            .filter(|(held, _, party)| has_more(*party, *held))
            .collect();
        uids.sort_unstable();
        let of_uids = uids.into_iter().rev().find_map(|(.., uid)| self.oldest(uid));
        of_uids.or_else(|| self.oldest(None).filter(|entry| entry.idle(now) >= EVICTABLE_AFTER))
    }

    /// The least recently used idle entry of `party` whose plugin is not running.
    fn oldest(&mut self, party: Party) -> Option<Arc<KeyEntry>> {
        let account = self.parties.get_mut(&party)?;
        let (mut touched, mut oldest) = (Vec::new(), None::<(u64, &Arc<KeyEntry>)>);
        for ((listed, _), entry) in account.idle.iter().filter(|(_, entry)| !entry.is_running()) {
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
            account.unlist(&entry);
            account.list(entry);
        }
        oldest
    }

    fn account(&mut self, party: Party) -> &mut Account {
        self.parties.entry(party).or_default()
    }

    fn count(&mut self, party: Party, change: impl Fn(&mut Held)) {
        change(&mut self.total);
        change(&mut self.account(party).held);
    }
}

#[cfg(test)]
mod tests;
