//! Places for connections: how many there may be of all peers, of one uid and of one process, and which connection gives
//! way to a new one.

mod budget;
mod held;
mod taken;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    Peer,
    traffic::{Statuses, Traffic},
};
use budget::{Budget, open_files};
use taken::{Served, Taken};

pub use budget::affordable_runs;
pub use held::TooManyBytes;
pub(super) use held::{Held, HeldCounts};

/// Connections of one process that had no call within a second of their start, or half of all places if those are fewer.
/// For one more, the oldest of them gives way, even if there are free places: a client that connects has a call.
const SILENT: usize = 48;

/// Limits of connections, and of what the broker holds for their peers.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at the same time.
    pub connections: usize,
    /// The same of one uid.
    pub connections_per_uid: usize,
    /// The same of one process.
    pub connections_per_process: usize,
    /// Bytes of unfinished requests and of answers that are not read, of one uid.
    pub bytes_per_uid: usize,
    /// The same of one process.
    pub bytes_per_process: usize,
    /// Watches of one connection.
    pub watches_per_connection: usize,
    /// Plugin runs at the same time, for which file descriptors are kept.
    pub plugin_runs: usize,
}

/// The limit that leaves no place for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Full {
    /// `limits.connections`.
    Connections(usize),
    /// The limit of open files allows so many.
    OpenFiles(usize),
    /// `limits.connectionsPerUid`.
    Uid(usize),
    /// `limits.connectionsPerProcess`.
    Process(usize),
    /// So many connections of the process had no call, and others like them are being closed.
    Silent(usize),
}

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    limits: ConnectionLimits,
    /// Reads the limit of open files: it can change while the broker runs.
    open_files: fn() -> usize,
    taken: Mutex<Taken>,
    statuses: Statuses,
}

/// A place. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    /// `None`: for a connection that is refused.
    number: Option<u64>,
}

impl Places {
    pub(super) fn new(limits: ConnectionLimits, statuses: Statuses) -> Self {
        Self { limits, open_files, taken: Mutex::default(), statuses }
    }

    /// Takes a place for a connection of `peer` at `now`, and the counts of that connection. If there is none, the
    /// connection that had no call for the longest time gives way: one of the same process or uid if that has its share.
    ///
    /// # Errors
    ///
    /// No connection is idle.
    pub(super) fn take(
        self: &Arc<Self>,
        peer: &Peer,
        end: CancellationToken,
        now: Duration,
    ) -> Result<(Place, Arc<Traffic>), Full> {
        let (limits, budget) = (&self.limits, self.budget());
        let (uid, process) = (peer.uid, peer.process());
        let (total, by_files) =
            (limits.connections.min(budget.connections), budget.connections < limits.connections);
        let few = if by_files { (total * 3 / 4).max(1) } else { usize::MAX };
        // Without a process ID, all processes of the uid count as one, so only the share of the uid limits them.
        let share = peer.pid.map_or(usize::MAX, |_| limits.connections_per_process);
        let (per_process, per_uid) = (share.min(few), limits.connections_per_uid.min(few));
        let most_silent = SILENT.min((total / 2).max(2));
        let mut taken = self.lock();
        let may_leave = budget.spare.div_ceil(2);
        if let Some(silent) = taken.oldest_silent(process, most_silent, now) {
            if taken.leaving.len() >= may_leave {
                return Err(Full::Silent(most_silent));
            }
            taken.gives_way(silent);
        }
        let is_full = taken.served.len() >= total;
        let (uid_has, process_has) = taken.shares(uid, process);
        let (of_uid, of_process) = (uid_has >= per_uid, process_has >= per_process);
        if is_full || of_uid || of_process {
            let may_give_way = |served: &Served| match (of_process, of_uid) {
                (true, _) => served.process == process,
                (false, true) => served.uid == uid,
                (false, false) => true,
            };
            let has_exit = taken.leaving.len() < may_leave;
            let Some(idle) = taken.longest_idle(may_give_way, now).filter(|_| has_exit) else {
                return Err(match (is_full, of_process) {
                    (true, _) if by_files => Full::OpenFiles(total),
                    (true, _) => Full::Connections(total),
                    (false, true) if by_files => Full::OpenFiles(per_process),
                    (false, true) => Full::Process(per_process),
                    (false, false) if by_files => Full::OpenFiles(per_uid),
                    (false, false) => Full::Uid(per_uid),
                });
            };
            taken.gives_way(idle);
        }
        let (number, traffic) =
            taken.enter((uid, process), limits, |holding| Traffic::new(end, holding, now, self.statuses));
        Ok((Place { places: Arc::clone(self), number: Some(number) }, traffic))
    }

    /// Takes a place for a connection that is refused; `None`: too many are refused at the moment.
    pub(super) fn refuse(self: &Arc<Self>) -> Option<Place> {
        let spare = self.budget().spare / 2;
        let mut taken = self.lock();
        if taken.refused >= spare {
            return None;
        }
        taken.refused += 1;
        Some(Place { places: Arc::clone(self), number: None })
    }

    fn budget(&self) -> Budget {
        Budget::of((self.open_files)(), self.limits.plugin_runs)
    }

    /// The maps are consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match self.number {
            Some(number) if taken.leaving.remove(&number) => {}
            Some(number) => drop(taken.remove(number)),
            None => taken.refused = taken.refused.saturating_sub(1),
        }
    }
}
