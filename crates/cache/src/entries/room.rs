//! What makes room in a full cache: which entries give way.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    super::{
        entry::KeyEntry,
        full::Room,
        makers::{Made, by_share},
        state::EVICTABLE_AFTER,
    },
    KeyEntries,
};
use credbroker_observe::clock::Now;

/// The shortest time between two searches of a full cache for entries that give way, if the first found less than one in
/// `WORTHWHILE`.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
const WORTHWHILE: usize = 64;
/// At least so many of the entries that a search found give way before the next search.
const AT_LEAST: usize = 16;

/// Entries that were found by a search. One search serves many requests, so that a request for room is cheap when every
/// entry is in use.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    found: Vec<Weak<KeyEntry>>,
    /// Time since boot before which there is no further search.
    next_search: Duration,
}

impl KeyEntries {
    /// Makes room for one entry.
    pub(super) fn make_room(&mut self, total: usize, now: Now) -> Result<(), Room> {
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

    /// Removes an entry that `process` made, to make room for its bytes.
    pub(super) fn displace_own(&mut self, process: u64, now: Now) -> Option<()> {
        let is_own =
            |entry: &&Arc<KeyEntry>| entry.made.as_ref().is_some_and(|made| made.process() == process);
        let own = self.by_key.values().filter(|entry| is_own(entry) && entry.may_give_way());
        let oldest = own.max_by_key(|entry| entry.idle(now)).cloned()?;
        self.displace(oldest);
        Some(())
    }

    pub(super) fn displace(&mut self, entry: Arc<KeyEntry>) {
        self.remove(&entry);
        entry.made.iter().for_each(Made::release);
        self.displaced.push(entry);
    }

    /// The entry that a caller made and that gives way first.
    pub(super) fn find_spare(&mut self, now: Now) -> Option<Arc<KeyEntry>> {
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
    pub(super) fn find_idle(&mut self, now: Now) -> Option<Arc<KeyEntry>> {
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
