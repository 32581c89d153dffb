//! The callers that wait for plugin runs: their number is limited, and one process cannot take all places.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Callers that may wait at a time.
pub(crate) const LIMIT: usize = 4096;

/// The places for callers that wait.
#[derive(Debug)]
pub(crate) struct WaitingPlaces {
    limit: usize,
    taken: Mutex<TakenPlaces>,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    total: usize,
    by_peer: HashMap<u64, usize>,
}

/// A place of one caller. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct WaitingPlace<'a> {
    places: &'a WaitingPlaces,
    peer: u64,
}

impl WaitingPlaces {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::default() }
    }

    /// Takes a place for a caller of the process `peer`; `None`: it has its share.
    ///
    /// A process may have as many places as are free. So one process alone gets half of them, two get a third each, and
    /// a process that has none yet finds one until all are taken.
    pub(crate) fn take(&self, peer: u64) -> Option<WaitingPlace<'_>> {
        let mut taken = self.lock();
        let free = self.limit.saturating_sub(taken.total);
        let of_peer = taken.by_peer.get(&peer).copied().unwrap_or_default();
        if of_peer >= free {
            return None;
        }
        taken.by_peer.insert(peer, of_peer + 1);
        taken.total += 1;
        Some(WaitingPlace { places: self, peer })
    }

    fn lock(&self) -> MutexGuard<'_, TakenPlaces> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.total = taken.total.saturating_sub(1);
        if let Some(count) = taken.by_peer.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes places for `peer` until there are no more.
    fn take_all(places: &WaitingPlaces, peer: u64) -> Vec<WaitingPlace<'_>> {
        std::iter::from_fn(|| places.take(peer)).collect()
    }

    #[test]
    fn a_process_never_takes_the_places_of_all_others() {
        let places = WaitingPlaces::new(100);
        let first = take_all(&places, 1);
        assert_eq!(first.len(), 50);
        let others: Vec<_> = (2..7).map(|peer| take_all(&places, peer)).collect();
        let shares: Vec<_> = others.iter().map(Vec::len).collect();
        assert_eq!(shares, [25, 13, 6, 3, 2]);
        assert!(places.take(7).is_some(), "the last place goes to a process that has none");
        drop(first);
        assert!(places.take(2).is_some());
    }

    #[test]
    fn all_places_come_back() {
        let places = WaitingPlaces::new(10);
        drop((take_all(&places, 1), take_all(&places, 2)));
        let taken = places.lock();
        assert!(taken.total == 0 && taken.by_peer.is_empty());
    }
}
