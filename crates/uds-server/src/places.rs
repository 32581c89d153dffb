//! Places for connections: whether a peer gets one, and which connection gives way to a new one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    account::{Account, Full, Held, Limit, Who},
    identity::PINNED,
    linux::{Peer, coarse, open_files},
    traffic::{LOOK_EVERY, Served, Traffic},
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

#[derive(Debug)]
pub(crate) struct Places {
    limits: Limits,
    /// Reads the limit of open files: it can change while the server runs.
    open_files: fn() -> usize,
    all: Arc<Held>,
    table: Mutex<Table>,
    /// Notified when there is a connection again.
    occupied: Notify,
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

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    /// `None`: for a connection that is refused.
    number: Option<u64>,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        let (all, table, occupied) = (Arc::default(), Mutex::default(), Notify::default());
        Self { limits, open_files, all, table, occupied }
    }

    /// The connections that are served.
    pub(crate) fn taken(&self) -> usize {
        self.lock().served.len()
    }

    /// Takes a place for a connection of `peer` at `now`. If there is none, the connection that had no call for the longest
    /// time gives way: one of the same process or uid if that has its share. Fails if none is idle.
    pub(crate) fn take(
        self: &Arc<Self>,
        peer: &Peer,
        end: CancellationToken,
        now: Duration,
    ) -> Result<(Place, Arc<Traffic>), Full> {
        let (limits, budget) = (&self.limits, Budget::of((self.open_files)(), self.limits.runs));
        let (most, limit) = if budget.connections < limits.connections {
            (budget.connections, Limit::OpenFiles)
        } else {
            (limits.connections, Limit::Connections)
        };
        let may_leave = budget.spare.div_ceil(2);
        let mut table = self.lock();
        let account = table.account(self, peer);
        let most_silent = SILENT.min((most / 2).max(2));
        let (are_silent, late) = table.too_silent(&account, most_silent, now);
        if are_silent {
            let full = Full { limit: Limit::Silent, who: Who::Process, most: most_silent };
            table.gives_way(late, may_leave).ok_or(full)?;
        }
        let checks = [
            account.check(limit, |held| &held.connections, most),
            account.check(Limit::Bytes, |held| &held.bytes, limits.bytes),
        ];
        if let Some(full) = checks.into_iter().filter_map(Result::err).min_by_key(|full| full.who) {
            let idle = table.longest_idle(&account, full.who, now);
            table.gives_way(idle, may_leave).ok_or(full)?;
        }
        let traffic = Traffic::new(end, Arc::clone(&account), now);
        let number = table.add(account, Served::new(&traffic));
        if table.served.len() == 1 {
            self.occupied.notify_one();
        }
        Ok((Place { places: Arc::clone(self), number: Some(number) }, traffic))
    }

    /// Looks at all connections while there are any, each time that `tick` has waited for the interval.
    pub(crate) async fn watch_over<F: Future<Output = ()>>(&self, tick: impl Fn(Duration) -> F) {
        loop {
            let is_empty = self.lock().served.is_empty();
            if is_empty {
                self.occupied.notified().await;
            }
            tick(LOOK_EVERY).await;
            let now = coarse();
            self.lock().served.values_mut().for_each(|served| served.look(now));
        }
    }

    /// Takes a place for a connection that is refused; `None`: too many are refused at the moment.
    pub(crate) fn refuse(self: &Arc<Self>) -> Option<Place> {
        let spare = Budget::of((self.open_files)(), self.limits.runs).spare / 2;
        let mut table = self.lock();
        if table.refused >= spare {
            return None;
        }
        table.refused += 1;
        Some(Place { places: Arc::clone(self), number: None })
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
    /// The account of the process of `peer`. A new one is in the table when it has a connection.
    fn account(&self, places: &Places, peer: &Peer) -> Arc<Account> {
        let (uid, process) = (peer.uid, peer.process());
        self.processes.get(&process).cloned().unwrap_or_else(|| {
            let of_uid = self.uids.get(&uid).cloned().unwrap_or_default();
            let (held, is_process) = ([Arc::default(), of_uid, Arc::clone(&places.all)], peer.pid.is_some());
            Arc::new(Account { uid, process, is_process, held, most: places.limits.bytes })
        })
    }

    fn add(&mut self, account: Arc<Account>, served: Served) -> u64 {
        for held in &account.held {
            held.connections.fetch_add(1, Ordering::Relaxed);
        }
        let [_, of_uid, _] = &account.held;
        self.uids.entry(account.uid).or_insert_with(|| Arc::clone(of_uid));
        self.processes.entry(account.process).or_insert(account);
        self.next += 1;
        self.served.insert(self.next, served);
        self.next
    }

    /// The connection that had no call for the longest time, at least [`IDLE`], and gives way to one of `account`: one of
    /// those `who` have their share.
    fn longest_idle(&self, account: &Account, who: Who, now: Duration) -> Option<u64> {
        let idle = self.served.iter().filter_map(|(number, served)| {
            let of = &served.traffic.reserve.account;
            let may_give_way = match who {
                Who::Connection | Who::Process => of.process == account.process,
                Who::Uid => of.uid == account.uid,
                Who::All => true,
            };
            let idle = served.traffic.idle(now).filter(|idle| may_give_way && *idle >= IDLE)?;
            Some((idle, Reverse(*number)))
        });
        idle.max().map(|(_, Reverse(number))| number)
    }

    /// Whether the process has `most` connections without a call in time, or too many without one; the oldest of the former.
    fn too_silent(&self, account: &Account, most: usize, now: Duration) -> (bool, Option<u64>) {
        let [of_process, ..] = &account.held;
        if of_process.connections.load(Ordering::Relaxed) < most {
            return (false, None);
        }
        let traffic = self.served.iter().map(|(number, served)| (*number, &served.traffic));
        let own = traffic.filter(|(_, traffic)| traffic.reserve.account.process == account.process);
        let silent: Vec<_> = own.filter(|(_, traffic)| traffic.begun() == 0).collect();
        let late: Vec<_> = silent.iter().filter(|(_, traffic)| traffic.idle(now) >= Some(IDLE)).collect();
        let are_too_many = late.len() >= most || account.is_process && silent.len() >= MOST_SILENT;
        (are_too_many, late.first().map(|(number, _)| *number))
    }

    /// The connection of that number ends, and its place is free. `None`: there is none, or too many are leaving.
    fn gives_way(&mut self, number: Option<u64>, may_leave: usize) -> Option<()> {
        let number = number.filter(|_| self.leaving.len() < may_leave)?;
        self.remove(number)?.traffic.end.cancel();
        self.leaving.insert(number);
        Some(())
    }

    /// Frees the place of a connection, and forgets its process and uid if it was their last one.
    fn remove(&mut self, number: u64) -> Option<Served> {
        let served = self.served.remove(&number)?;
        let account = &served.traffic.reserve.account;
        let [process, uid, _] =
            account.held.each_ref().map(|held| held.connections.fetch_sub(1, Ordering::Relaxed));
        if process == 1 {
            self.processes.remove(&account.process);
        }
        if uid == 1 {
            self.uids.remove(&account.uid);
        }
        Some(served)
    }
}

/// The descriptors of the process, divided among connections, those besides them that are refused or leave, and runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Budget {
    connections: usize,
    spare: usize,
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
