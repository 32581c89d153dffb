//! Who is at the other end of a connection, as the kernel recorded it when the peer connected.

use std::{io, sync::Arc};

use rustix::process::getpid;
use tokio::net::UnixStream;
use tracing::info;

use super::{
    origin::Home,
    peer::Peer,
    process::{ProcessPin, Status, executable},
    users::Users,
};
use credbroker_plugin::{
    Origin,
    access::{Facts, Principal, Process},
};
use credbroker_runner::{CallingRun, LiveRuns};

/// The most processes whose facts may wait to be read, because each of them takes an open file. The facts of further ones
/// are read at once.
pub(super) const PINNED: usize = 8;

/// Reads the identity of peers.
#[derive(Debug)]
pub(super) struct Identities {
    home: Arc<Home>,
    users: Users,
    own_pid: i32,
    /// Names of the listeners, in the order of the configuration.
    listeners: Vec<Arc<str>>,
    runs: LiveRuns,
    /// One reference for each process whose facts are not read yet.
    pinned: Arc<()>,
}

/// The identity of one peer.
#[derive(Debug)]
pub(super) struct PeerIdentity {
    pub(super) peer: Peer,
    pub(super) principal: Principal,
    /// The plugin run that it is a process of.
    pub(super) run: Option<PeerRun>,
}

/// The plugin run of a peer.
#[derive(Clone, Debug)]
pub(super) enum PeerRun {
    /// The peer is the plugin or descends from it.
    Known(Arc<CallingRun>),
    /// The peer has ended, and its connection may be one of a run.
    Possible,
}

impl PeerRun {
    /// A request of the peer is refused. Its run ends soon, and no other one.
    pub(super) fn refused(&self) {
        if let Self::Known(run) = self {
            run.refused();
        }
    }
}

impl Identities {
    pub(super) fn new(listeners: Vec<Arc<str>>, runs: LiveRuns) -> Self {
        if !ProcessPin::is_by_kernel() {
            info!(
                "the kernel has no SO_PEERPIDFD (Linux 6.5): a peer is identified by its process ID and owner"
            );
        }
        let own_pid = getpid().as_raw_nonzero().get();
        Self {
            home: Arc::new(Home::of_this_process()),
            users: Users::of_this_process(),
            own_pid,
            listeners,
            runs,
            pinned: Arc::default(),
        }
    }

    /// The identity of the peer of `stream`, which the listener of that number accepted. The kernel recorded uid, gid and
    /// process ID when the peer connected.
    pub(super) fn of(&self, stream: &UnixStream, listener: usize) -> io::Result<PeerIdentity> {
        let peer = Peer::of(stream, listener)?;
        // A process of another PID namespace is known by its uid and gid only, and so is every process if `/proc` shows
        // another PID namespace than that of the broker.
        let pid = peer.pid.filter(|_| self.home.sees_processes());
        let pin = pid.and_then(|pid| ProcessPin::of(stream, pid));
        let run = pid.and_then(|pid| self.run(pid, pin.as_ref()));
        let process = match pid.zip(pin) {
            None => Process::default(),
            Some((pid, pin)) => {
                let (home, users, pinned) = (Arc::clone(&self.home), self.users, Arc::clone(&self.pinned));
                Process::new(move || {
                    let read = facts(&home, users, &peer, pid, &pin);
                    drop(pinned);
                    read
                })
            }
        };
        if Arc::strong_count(&self.pinned) > PINNED {
            process.facts();
        }
        let principal = Principal {
            uid: self.users.user(peer.uid),
            gid: self.users.group(peer.gid),
            process,
            listener: self.listeners.get(listener).cloned().unwrap_or_default(),
            is_owner: self.users.is_owner(peer.uid),
        };
        Ok(PeerIdentity { peer, principal, run })
    }

    /// The run of the process `pid`, if that is a plugin or a descendant of one. Its uid does not count: a plugin may change
    /// its user.
    ///
    /// Decided once for each connection. The processes of a run are younger than the run, so none of them has connected
    /// before it. If the process has ended, it may have left its connection to one that still runs.
    fn run(&self, pid: i32, pin: Option<&ProcessPin>) -> Option<PeerRun> {
        if pid == self.own_pid || self.runs.is_empty() {
            return None;
        }
        let is_alive = || pin.is_some_and(ProcessPin::is_alive);
        let find = || {
            let run = self.runs.find(pid.cast_unsigned())?;
            // Of a process that has ended, another one may have the number, and its run must go on.
            Some(if is_alive() { PeerRun::Known(run) } else { PeerRun::Possible })
        };
        // Twice: a process of the chain may have ended between two looks, and its children have another parent then.
        find().or_else(|| {
            if is_alive() { find() } else { self.runs.may_have_inherited().then_some(PeerRun::Possible) }
        })
    }

    /// Whether the broker can identify its own user.
    pub(super) fn identify_own(&self) -> bool {
        self.users.identify_own()
    }
}

/// What `/proc` says about the process `pid` of `peer`, which does not block. It counts only if the process still runs
/// afterwards.
fn facts(home: &Home, users: Users, peer: &Peer, pid: i32, pin: &ProcessPin) -> Facts {
    let status = Status::of(pid).unwrap_or_default();
    let is_same = status.owner == Some((peer.uid, peer.gid));
    let shared = home.shared(pid);
    // A path means the same file only in the broker's own mount namespace.
    let executable = if is_same && shared.mounts { executable(pid) } else { None };
    if !pin.is_alive() {
        return Facts::default();
    }
    let groups = if is_same { status.groups } else { Vec::new() };
    let is_beside = is_same && users.is_own(peer.uid) && shared.mounts && shared.processes;
    Facts {
        groups: groups.into_iter().filter_map(|gid| users.group(gid)).collect(),
        executable,
        origin: if is_beside { Origin::Beside } else { Origin::Elsewhere },
    }
}

#[cfg(test)]
mod tests;
