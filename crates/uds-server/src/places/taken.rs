//! The places that are taken, and which of them is free next.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use super::{ConnectionLimits, Held, HeldCounts};
use crate::traffic::Traffic;

/// A connection without a call for this time gives way to a new one when there is no place left.
const IDLE: Duration = Duration::from_secs(1);

/// The places that are taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    next: u64,
    /// By number, so in the order of their connections.
    pub(super) served: BTreeMap<u64, Served>,
    pub(super) uids: HashMap<u32, Holder>,
    pub(super) processes: HashMap<u64, Holder>,
    /// Connections that gave way and have not ended.
    pub(super) leaving: HashSet<u64>,
    pub(super) refused: usize,
}

#[derive(Debug)]
pub(super) struct Served {
    pub(super) uid: u32,
    pub(super) process: u64,
    pub(super) traffic: Arc<Traffic>,
}

/// What one uid or process has.
#[derive(Debug)]
pub(super) struct Holder {
    /// By number.
    connections: BTreeSet<u64>,
    held: Arc<Held>,
}

impl Taken {
    /// How many connections a uid and a process have.
    pub(super) fn shares(&self, uid: u32, process: u64) -> (usize, usize) {
        (count(&self.uids, &uid), count(&self.processes, &process))
    }

    /// Takes a place for a connection of a uid and a process, whose counts `traffic` makes. Returns its number.
    pub(super) fn enter(
        &mut self,
        (uid, process): (u32, u64),
        limits: &ConnectionLimits,
        traffic: impl FnOnce(HeldCounts) -> Arc<Traffic>,
    ) -> (u64, Arc<Traffic>) {
        let number = self.next;
        self.next += 1;
        let of_process = || Held::new("limits.bytesPerProcess", limits.bytes_per_process);
        let of_uid = || Held::new("limits.bytesPerUid", limits.bytes_per_uid);
        let traffic = traffic(HeldCounts(Some([
            enter(&mut self.processes, process, number, of_process),
            enter(&mut self.uids, uid, number, of_uid),
        ])));
        self.served.insert(number, Served { uid, process, traffic: Arc::clone(&traffic) });
        (number, traffic)
    }

    /// The connection that had no call for the longest time, at least [`IDLE`].
    pub(super) fn longest_idle(&self, may_give_way: impl Fn(&Served) -> bool, now: Duration) -> Option<u64> {
        let candidates = self.served.iter().filter(|(_, served)| may_give_way(served));
        let idle = candidates.filter_map(|(number, served)| Some((served.traffic.idle(now)?, *number)));
        let longest = idle.max_by_key(|(idle, number)| (*idle, std::cmp::Reverse(*number)));
        longest.filter(|(idle, _)| *idle >= IDLE).map(|(_, number)| number)
    }

    /// The oldest connection of `process` that had no call in time, if it has `most` of them.
    pub(super) fn oldest_silent(&self, process: u64, most: usize, now: Duration) -> Option<u64> {
        let own = &self.processes.get(&process)?.connections;
        if own.len() < most {
            return None;
        }
        let is_silent = |number: &&u64| {
            let traffic = self.served.get(number).map(|served| &served.traffic);
            traffic.is_some_and(|traffic| traffic.is_silent() && traffic.idle(now) >= Some(IDLE))
        };
        let mut silent = own.iter().filter(is_silent);
        let oldest = silent.next()?;
        (silent.count() + 1 >= most).then_some(*oldest)
    }

    /// The connection ends, and its place is free.
    pub(super) fn gives_way(&mut self, number: u64) {
        if let Some(served) = self.remove(number) {
            served.traffic.give_way();
            self.leaving.insert(number);
        }
    }

    /// Frees the place of a connection.
    pub(super) fn remove(&mut self, number: u64) -> Option<Served> {
        let served = self.served.remove(&number)?;
        leave(&mut self.uids, served.uid, number);
        leave(&mut self.processes, served.process, number);
        Some(served)
    }
}

fn count<K: Eq + Hash>(holders: &HashMap<K, Holder>, key: &K) -> usize {
    holders.get(key).map_or(0, |holder| holder.connections.len())
}

fn enter<K: Eq + Hash>(
    holders: &mut HashMap<K, Holder>,
    key: K,
    number: u64,
    held: impl Fn() -> Held,
) -> Arc<Held> {
    let new = || Holder { connections: BTreeSet::new(), held: Arc::new(held()) };
    let holder = holders.entry(key).or_insert_with(new);
    holder.connections.insert(number);
    Arc::clone(&holder.held)
}

fn leave<K: Copy + Eq + Hash>(holders: &mut HashMap<K, Holder>, key: K, number: u64) {
    let Some(holder) = holders.get_mut(&key) else { return };
    holder.connections.remove(&number);
    if holder.connections.is_empty() {
        holders.remove(&key);
    }
}
