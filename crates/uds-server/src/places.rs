//! Places for connections: whether a peer gets one, and which connection gives way to a new one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    account::{Account, Full, Held, Limit, Who, lacks},
    identity::PINNED,
    linux::{Peer, open_files},
    traffic::{CONNECTION, Statuses, Traffic},
};

/// Connections of one process that had no call within a second of their start, or half of all if those are fewer. For one
/// more, the oldest of them gives way, even if there is room: a client that connects has a call.
const SILENT: usize = 48;
/// The same of a process that is known, without that second.
const MOST_SILENT: usize = 256;
/// A connection without a call for this time gives way to a new one when there is no room.
const IDLE: Duration = Duration::from_secs(1);

/// Descriptors of the process itself: its log, timers, listeners, lock files, and processes that it pinned.
const OWN: usize = 32 + PINNED;
/// Descriptors of one run: the pipes of its output and of its start, and the process.
const PER_RUN: usize = 12;
/// The most connections that are refused or leave at a time. They do not count among the served ones.
const SPARE: usize = 48;

/// Limits of what all peers hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Bytes of connections, calls, unfinished requests and answers that are not read.
    pub bytes: usize,
    /// Processes that the program runs at the same time, for which file descriptors are kept.
    pub runs: usize,
}

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    limits: Limits,
    /// Reads the limit of open files: it can change while the server runs.
    open_files: fn() -> usize,
    all: Arc<Held>,
    table: Mutex<Table>,
    statuses: Statuses,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By number, so in the order of their connections.
    served: BTreeMap<u64, Served>,
    uids: HashMap<u32, Arc<Held>>,
    processes: HashMap<u64, Arc<Account>>,
    /// Connections that gave way and have not ended.
    leaving: HashSet<u64>,
    refused: usize,
}

#[derive(Debug)]
struct Served {
    uid: u32,
    process: u64,
    traffic: Arc<Traffic>,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    /// `None`: for a connection that is refused.
    number: Option<u64>,
}

impl Places {
    pub(crate) fn new(limits: Limits, statuses: Statuses) -> Self {
        Self { limits, open_files, all: Arc::default(), table: Mutex::default(), statuses }
    }

    /// Takes a place for a connection of `peer` at `now`. If there is none, the connection that had no call for the longest
    /// time gives way: one of the same process or uid if that has its share.
    ///
    /// # Errors
    ///
    /// No connection is idle.
    pub(crate) fn take(
        self: &Arc<Self>,
        peer: &Peer,
        end: CancellationToken,
        now: Duration,
    ) -> Result<(Place, Arc<Traffic>), Full> {
        let (limits, budget) = (&self.limits, self.budget());
        let (most, limit) = if budget.connections < limits.connections {
            (budget.connections, Limit::OpenFiles)
        } else {
            (limits.connections, Limit::Connections)
        };
        let (uid, process, is_process) = (peer.uid, peer.process(), peer.pid.is_some());
        let mut table = self.lock();
        let account = table.account(self, (uid, process), is_process);
        let may_leave = budget.spare.div_ceil(2);
        let most_silent = SILENT.min((most / 2).max(2));
        let most_at_once = if is_process { MOST_SILENT } else { usize::MAX };
        let (are_many, oldest) = table.silent(process, (most_silent, most_at_once), now);
        if are_many {
            let Some(oldest) = oldest.filter(|_| table.leaving.len() < may_leave) else {
                return Err(Full { limit: Limit::Silent, who: Who::Process, most: most_silent });
            };
            table.gives_way(oldest);
        }
        let no_connection = lacks(account.count(|held| &held.connections), most, is_process);
        let no_bytes = lacks(account.count(|held| &held.bytes), limits.bytes, is_process);
        let full = [(no_connection, limit, most), (no_bytes, Limit::Bytes, limits.bytes)];
        let full = full.into_iter().filter_map(|(who, limit, most)| Some(Full { limit, who: who?, most }));
        if let Some(full) = full.min_by_key(|full| full.who) {
            let may_give_way = |served: &Served| match full.who {
                Who::Connection | Who::Process => served.process == process,
                Who::Uid => served.uid == uid,
                Who::All => true,
            };
            let has_exit = table.leaving.len() < may_leave;
            let Some(idle) = table.longest_idle(may_give_way, now).filter(|_| has_exit) else {
                table.forget_unused((uid, process));
                return Err(full);
            };
            table.gives_way(idle);
        }
        let account = table.account(self, (uid, process), is_process);
        for held in account.held() {
            held.connections.fetch_add(1, Ordering::Relaxed);
        }
        account.add(CONNECTION);
        let traffic = Traffic::new(end, Some(account), now, self.statuses);
        let number = table.next;
        table.next += 1;
        table.served.insert(number, Served { uid, process, traffic: Arc::clone(&traffic) });
        Ok((Place { places: Arc::clone(self), number: Some(number) }, traffic))
    }

    /// Takes a place for a connection that is refused; `None`: too many are refused at the moment.
    pub(crate) fn refuse(self: &Arc<Self>) -> Option<Place> {
        let spare = self.budget().spare / 2;
        let mut table = self.lock();
        if table.refused >= spare {
            return None;
        }
        table.refused += 1;
        Some(Place { places: Arc::clone(self), number: None })
    }

    fn budget(&self) -> Budget {
        Budget::of((self.open_files)(), self.limits.runs)
    }

    /// The maps are consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        match self.number {
            Some(number) if table.leaving.remove(&number) => {}
            Some(number) => drop(table.remove(number)),
            None => table.refused = table.refused.saturating_sub(1),
        }
    }
}

impl Table {
    fn account(&mut self, places: &Places, (uid, process): (u32, u64), is_process: bool) -> Arc<Account> {
        let uid = self.uids.entry(uid).or_default();
        let account = self.processes.entry(process).or_insert_with(|| {
            let (uid, all) = (Arc::clone(uid), Arc::clone(&places.all));
            Arc::new(Account { process: Held::default(), uid, all, most: places.limits.bytes, is_process })
        });
        Arc::clone(account)
    }

    /// The connection that had no call for the longest time, at least [`IDLE`].
    fn longest_idle(&self, may_give_way: impl Fn(&Served) -> bool, now: Duration) -> Option<u64> {
        let candidates = self.served.iter().filter(|(_, served)| may_give_way(served));
        let idle = candidates.filter_map(|(number, served)| Some((served.traffic.idle(now)?, *number)));
        let longest = idle.max_by_key(|(idle, number)| (*idle, std::cmp::Reverse(*number)));
        longest.filter(|(idle, _)| *idle >= IDLE).map(|(_, number)| number)
    }

    /// Whether `process` has too many connections without a call, and the oldest that had none in time, for which `most` are
    /// too many. Of all of them, `most_at_once` are too many.
    fn silent(
        &self,
        process: u64,
        (most, most_at_once): (usize, usize),
        now: Duration,
    ) -> (bool, Option<u64>) {
        let has =
            self.processes.get(&process).map(|account| account.process.connections.load(Ordering::Relaxed));
        if has < Some(most) {
            return (false, None);
        }
        let own = self.served.iter().filter(|(_, served)| served.process == process);
        let silent: Vec<_> = own.filter(|(_, served)| served.traffic.is_silent()).collect();
        let mut late = silent.iter().filter(|(_, served)| served.traffic.idle(now) >= Some(IDLE));
        let oldest = late.next().map(|(number, _)| **number);
        let are_late = oldest.is_some() && late.count() + 1 >= most;
        (are_late || silent.len() >= most_at_once, oldest)
    }

    /// The connection ends, and its place is free.
    fn gives_way(&mut self, number: u64) {
        if let Some(served) = self.remove(number) {
            served.traffic.give_way();
            self.leaving.insert(number);
        }
    }

    /// Frees the place of a connection.
    fn remove(&mut self, number: u64) -> Option<Served> {
        let served = self.served.remove(&number)?;
        if let Some(account) = self.processes.get(&served.process) {
            for held in account.held() {
                held.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.forget_unused((served.uid, served.process));
        Some(served)
    }

    /// Forgets a process or uid without connections.
    fn forget_unused(&mut self, (uid, process): (u32, u64)) {
        let is_unused = |held: &Held| held.connections.load(Ordering::Relaxed) == 0;
        if self.processes.get(&process).is_some_and(|account| is_unused(&account.process)) {
            self.processes.remove(&process);
        }
        if self.uids.get(&uid).is_some_and(|held| is_unused(held)) {
            self.uids.remove(&uid);
        }
    }
}

/// The descriptors of the process, divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Budget {
    /// Connections that may be served.
    connections: usize,
    /// Connections besides them that are refused, or that leave.
    spare: usize,
    /// Runs at a time.
    runs: usize,
}

impl Budget {
    /// Divides `open_files` (`RLIMIT_NOFILE`) for `runs` at a time. Runs get what they need, but at most half; connections
    /// get the rest.
    fn of(open_files: usize, runs: usize) -> Self {
        let left = open_files.saturating_sub(OWN);
        let for_runs = runs.saturating_mul(PER_RUN).min(left / 2);
        let spare = ((left - for_runs) / 4).min(SPARE);
        let connections = (left - for_runs - spare).max(1);
        Self { connections, spare, runs: runs.min(for_runs / PER_RUN).max(1) }
    }
}

/// The runs at a time, of `wanted`, for which the limit of open files leaves descriptors.
pub fn affordable_runs(wanted: usize) -> usize {
    Budget::of(open_files(), wanted).runs
}

#[cfg(test)]
mod tests;
