//! How many runs the callers of one process, and of one uid, may have at a time.

use std::{collections::HashMap, hash::Hash};

use super::{gate::Cause, lane::Party};

/// Runs at a time that callers wait for.
#[derive(Clone, Copy, Debug)]
pub struct RunShares {
    /// Of one uid.
    pub per_uid: usize,
    /// Of one process.
    pub per_process: usize,
}

/// The started runs that callers wait for.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) limits: RunShares,
    processes: HashMap<u64, usize>,
    uids: HashMap<u32, usize>,
}

impl Shares {
    pub(super) fn new(limits: RunShares) -> Self {
        Self { limits, processes: HashMap::new(), uids: HashMap::new() }
    }

    /// Why no run of `party` starts now; `None`: it has less than its share. Only the runs that callers wait for count.
    pub(super) fn refuses(&self, party: Party) -> Option<Cause> {
        let Party::Peer(process) = party else { return None };
        let RunShares { per_uid, per_process } = self.limits;
        if self.processes.get(&process).is_some_and(|runs| *runs >= per_process) {
            return Some(Cause::ProcessShare { runs: per_process });
        }
        let of_uid = self.uids.get(&uid(process));
        of_uid.is_some_and(|runs| *runs >= per_uid).then_some(Cause::UidShare { runs: per_uid })
    }

    /// Notes a start. Returns whether `party` has its share now.
    pub(super) fn start(&mut self, party: Party) -> bool {
        if let Party::Peer(process) = party {
            *self.processes.entry(process).or_default() += 1;
            *self.uids.entry(uid(process)).or_default() += 1;
        }
        self.refuses(party).is_some()
    }

    /// Notes an end. Returns whether `party` had its share.
    pub(super) fn finish(&mut self, party: Party) -> bool {
        let had = self.refuses(party).is_some();
        if let Party::Peer(process) = party {
            decrease(&mut self.processes, process);
            decrease(&mut self.uids, uid(process));
        }
        had
    }
}

/// The upper half of a process is its uid.
pub(super) fn uid(process: u64) -> u32 {
    u32::try_from(process >> 32).unwrap_or(u32::MAX)
}

fn decrease<K: Copy + Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count = count.saturating_sub(1);
    if *count == 0 {
        counts.remove(&key);
    }
}
