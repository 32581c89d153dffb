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
    /// How many runs there may be at a time, of all peers.
    pub(super) runs: usize,
    processes: HashMap<u64, usize>,
    uids: HashMap<u32, usize>,
    /// The queued runs that callers of each uid wait for.
    waiting: HashMap<u32, usize>,
}

impl Shares {
    pub(super) fn new(limits: RunShares, runs: usize) -> Self {
        Self { limits, runs, processes: HashMap::new(), uids: HashMap::new(), waiting: HashMap::new() }
    }

    /// Notes that `party` waits for one more run. Returns whether a uid may have fewer runs now than before.
    pub(super) fn waits(&mut self, party: Party) -> bool {
        let Party::Peer(process) = party else { return false };
        let waiting = self.waiting.entry(uid(process)).or_default();
        *waiting += 1;
        *waiting == 1 && self.has_large_holder()
    }

    /// Undoes one [`waits`](Self::waits). Returns whether a uid may have more runs now than before.
    pub(super) fn left(&mut self, party: Party) -> bool {
        let Party::Peer(process) = party else { return false };
        decrease(&mut self.waiting, uid(process));
        !self.waiting.contains_key(&uid(process)) && self.has_large_holder()
    }

    /// Whether a uid has as many runs as it may have while another one waits.
    fn has_large_holder(&self) -> bool {
        self.uids.values().any(|runs| *runs >= self.shared())
    }

    /// The runs of one uid while another one waits: three quarters.
    fn shared(&self) -> usize {
        self.limits.per_uid.min((self.runs * 3 / 4).max(1))
    }

    /// The runs that `uid` may have.
    fn of_uid(&self, uid: u32) -> usize {
        let others_wait = self.waiting.len() > usize::from(self.waiting.contains_key(&uid));
        if others_wait { self.shared() } else { self.limits.per_uid }
    }

    /// Why no run of `party` starts now; `None`: it has less than its share. Only the runs that callers wait for count.
    pub(super) fn refuses(&self, party: Party) -> Option<Cause> {
        let Party::Peer(process) = party else { return None };
        let (per_process, per_uid) = (self.limits.per_process, self.of_uid(uid(process)));
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
