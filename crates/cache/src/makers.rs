//! The processes and uids whose requests made entries: those that the variables or the cluster of a caller select. There
//! can be any number of them, so they are counted, and give way before all others when there is no room.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use super::full::Room;
use credbroker_plugin::PluginSpec;

/// How many entries callers may make and use.
#[derive(Clone, Copy, Debug)]
pub struct EntryLimits {
    /// Entries in all.
    pub total: usize,
    /// Entries that the variables of callers of one uid select and that callers wait for or watch.
    pub in_use_per_uid: usize,
    /// The same of one process.
    pub in_use_per_process: usize,
    /// Bytes of the variables and clusters that select entries, of one uid.
    pub bytes_per_uid: usize,
    /// The same of one process.
    pub bytes_per_process: usize,
}

/// What one process or uid has.
#[derive(Debug, Default)]
struct Counts {
    in_use: AtomicUsize,
    bytes: AtomicUsize,
}

/// The counts of all processes and uids that have any.
#[derive(Debug, Default)]
pub(crate) struct Makers {
    processes: HashMap<u64, Arc<Counts>>,
    uids: HashMap<u32, Arc<Counts>>,
    /// The number of processes at which those without entries are removed.
    next_sweep: usize,
}

/// A process and its uid, with their counts.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    process: u64,
    counts: [Arc<Counts>; 2],
}

/// An entry of a maker. It counts until it is released or dropped.
#[derive(Debug)]
pub(crate) struct Made {
    maker: Maker,
    bytes: usize,
    is_released: AtomicBool,
}

/// An entry in use by a maker. Dropping it takes the entry from the counts.
#[derive(Debug)]
pub(crate) struct InUse(Maker);

impl Makers {
    /// The maker `process`: a uid in the upper half, a process ID in the lower one.
    pub(crate) fn get(&mut self, process: u64) -> Maker {
        if self.processes.len() >= self.next_sweep.max(64) {
            sweep(&mut self.processes);
            sweep(&mut self.uids);
            self.next_sweep = self.processes.len() * 2;
        }
        let of_process = Arc::clone(self.processes.entry(process).or_default());
        let of_uid = Arc::clone(self.uids.entry(uid(process)).or_default());
        Maker { process, counts: [of_process, of_uid] }
    }
}

fn sweep<K: Eq + Hash>(counts: &mut HashMap<K, Arc<Counts>>) {
    counts.retain(|_, counts| Arc::strong_count(counts) > 1);
}

impl Maker {
    pub(crate) fn process(&self) -> u64 {
        self.process
    }

    /// Whether another entry may be in use.
    ///
    /// # Errors
    ///
    /// The limit that is reached.
    pub(crate) fn check_use(&self, limits: &EntryLimits) -> Result<(), Room> {
        let [process, uid] = self.counts.each_ref().map(|counts| counts.in_use.load(Ordering::Relaxed));
        if process >= limits.in_use_per_process {
            return Err(Room::OfProcess { limit: limits.in_use_per_process });
        }
        if uid >= limits.in_use_per_uid {
            return Err(Room::OfUid { limit: limits.in_use_per_uid });
        }
        Ok(())
    }

    /// Whether there is room for `bytes` more.
    ///
    /// # Errors
    ///
    /// The limit that is exceeded.
    pub(crate) fn check_bytes(&self, bytes: usize, limits: &EntryLimits) -> Result<(), Room> {
        let [process, uid] = self.counts.each_ref().map(|counts| counts.bytes.load(Ordering::Relaxed));
        if process.saturating_add(bytes) > limits.bytes_per_process {
            return Err(Room::BytesOfProcess { limit: limits.bytes_per_process });
        }
        if uid.saturating_add(bytes) > limits.bytes_per_uid {
            return Err(Room::BytesOfUid { limit: limits.bytes_per_uid });
        }
        Ok(())
    }

    /// Notes an entry with so many bytes.
    pub(crate) fn makes(self, bytes: usize) -> Made {
        for counts in &self.counts {
            counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Made { maker: self, bytes, is_released: AtomicBool::new(false) }
    }

    /// Notes that it uses an entry.
    pub(crate) fn uses(self) -> InUse {
        for counts in &self.counts {
            counts.in_use.fetch_add(1, Ordering::Relaxed);
        }
        InUse(self)
    }
}

impl Made {
    pub(crate) fn process(&self) -> u64 {
        self.maker.process
    }

    pub(crate) fn uid(&self) -> u32 {
        uid(self.maker.process)
    }

    /// Takes the entry from the counts. A request may still hold it.
    pub(crate) fn release(&self) {
        if self.is_released.swap(true, Ordering::Relaxed) {
            return;
        }
        for counts in &self.maker.counts {
            counts.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.release();
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        for counts in &self.0.counts {
            counts.in_use.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The upper half of a process is its uid.
pub(crate) fn uid(process: u64) -> u32 {
    u32::try_from(process >> 32).unwrap_or(u32::MAX)
}

/// The bytes that a caller sent to select `spec`; `None`: no part of it is the caller's.
pub(crate) fn sent_bytes(spec: &PluginSpec) -> Option<usize> {
    let variables = spec.caller_env.iter().map(|(name, value)| name.len() + value.len());
    let cluster = spec.cluster.as_ref().filter(|_| spec.target.is_none());
    if spec.caller_env.is_empty() && cluster.is_none() {
        return None;
    }
    let cluster = cluster.map_or(0, |cluster| {
        let texts = [&cluster.server, &cluster.tls_server_name, &cluster.proxy_url].map(String::len);
        texts.iter().sum::<usize>() + cluster.certificate_authority_data.len() + cluster.config.len()
    });
    Some(variables.sum::<usize>() + cluster)
}

/// Orders entries for which there is no room: the last one gives way first. It is an old one of the process that made
/// the most, so that processes end up with equal shares; then of the uid that made the most; then the one that was not
/// used for the longest time. `entries` are sorted by that time, the last used one first.
pub(crate) fn by_share<T>(entries: Vec<T>, made: impl Fn(&T) -> (u64, u32)) -> Vec<T> {
    let (mut processes, mut uids) = (HashMap::new(), HashMap::new());
    let rank = |count: &mut usize| {
        *count += 1;
        *count
    };
    let mut ranked: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            let (process, uid) = made(&entry);
            let of_process = rank(processes.entry(process).or_default());
            ((of_process, rank(uids.entry(uid).or_default())), entry)
        })
        .collect();
    ranked.sort_by_key(|(ranks, _)| *ranks);
    ranked.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests;
