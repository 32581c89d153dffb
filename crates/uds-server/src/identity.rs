//! Who is at the other end of a connection, as the kernel recorded it when the peer connected.

use std::{io, path::Path, sync::Arc};

use tokio::net::UnixStream;
use tracing::info;

use super::{
    origin::Home,
    peer::Peer,
    process::{ProcessPin, Status, executable},
    users::Users,
};

/// The most processes whose facts may wait to be read, because each of them takes an open file. The facts of further ones
/// should be read at once.
pub(crate) const PINNED: usize = 8;

/// Reads the identity of peers.
#[derive(Debug)]
pub(crate) struct Identities {
    home: Arc<Home>,
    users: Users,
    /// One reference for each process whose facts are not read yet.
    pinned: Arc<()>,
}

/// The identity of one peer.
#[derive(Debug)]
pub struct PeerIdentity {
    /// As the kernel recorded it.
    pub peer: Peer,
    /// Its uid; `None`: the number identifies no user.
    pub uid: Option<u32>,
    /// Its gid; `None`: the number identifies no group.
    pub gid: Option<u32>,
    /// Whether the uid is that of this process or root's.
    pub is_owner: bool,
    /// The process that connected; `None`: it cannot be seen from here.
    pub process: Option<PeerProcess>,
}

/// The process that connected. It holds a descriptor until it is dropped.
#[derive(Debug)]
pub struct PeerProcess {
    peer: Peer,
    pid: i32,
    /// `None`: it has ended.
    pin: Option<ProcessPin>,
    home: Arc<Home>,
    users: Users,
    pinned: Arc<()>,
}

/// What can be learned about the process of a peer. The default is a process of which nothing is known.
#[derive(Debug, Default)]
pub struct ProcessFacts {
    /// Its supplementary groups; empty if they are not known.
    pub groups: Box<[u32]>,
    /// Path of its executable; `None` if this process may not read it, or has other mounts.
    pub executable: Option<Box<Path>>,
    /// Whether it runs as the same user with the same mounts and processes.
    pub is_beside: bool,
}

impl Identities {
    pub(crate) fn new() -> Self {
        if !ProcessPin::is_by_kernel() {
            info!(
                "the kernel has no SO_PEERPIDFD (Linux 6.5): a peer is identified by its process ID and owner"
            );
        }
        Self {
            home: Arc::new(Home::of_this_process()),
            users: Users::of_this_process(),
            pinned: Arc::default(),
        }
    }

    /// The identity of the peer of `stream`, which the listener of that number accepted. The kernel recorded uid, gid and
    /// process ID when the peer connected.
    pub(crate) fn of(&self, stream: &UnixStream, listener: usize) -> io::Result<PeerIdentity> {
        let peer = Peer::of(stream, listener)?;
        // A process of another PID namespace is known by its uid and gid only, and so is every process if `/proc` shows
        // another PID namespace than that of this process.
        let pid = peer.pid.filter(|_| self.home.sees_processes());
        let process = pid.map(|pid| PeerProcess {
            peer,
            pid,
            pin: ProcessPin::of(stream, pid),
            home: Arc::clone(&self.home),
            users: self.users,
            pinned: Arc::clone(&self.pinned),
        });
        Ok(PeerIdentity {
            peer,
            uid: self.users.user(peer.uid),
            gid: self.users.group(peer.gid),
            is_owner: self.users.is_owner(peer.uid),
            process,
        })
    }

    /// Whether the user of this process can be identified.
    pub(crate) fn identify_own(&self) -> bool {
        self.users.identify_own()
    }
}

impl PeerProcess {
    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    /// Whether the process still runs: then everything that was read under its ID is about it.
    pub fn is_alive(&self) -> bool {
        self.pin.as_ref().is_some_and(ProcessPin::is_alive)
    }

    /// Whether so many processes wait for their facts to be read that this one should not.
    pub fn is_urgent(&self) -> bool {
        Arc::strong_count(&self.pinned) > PINNED
    }

    /// What `/proc` says about the process, which does not block. It counts only if the process still runs afterwards.
    pub fn facts(&self) -> ProcessFacts {
        let Self { peer, pid, home, users, .. } = self;
        let status = Status::of(*pid).unwrap_or_default();
        let is_same = status.owner == Some((peer.uid, peer.gid));
        let shared = home.shared(*pid);
        // A path means the same file only in the same mount namespace.
        let executable = if is_same && shared.mounts { executable(*pid) } else { None };
        if !self.is_alive() {
            return ProcessFacts::default();
        }
        let groups = if is_same { status.groups } else { Vec::new() };
        ProcessFacts {
            groups: groups.into_iter().filter_map(|gid| users.group(gid)).collect(),
            executable,
            is_beside: is_same && users.is_own(peer.uid) && shared.mounts && shared.processes,
        }
    }
}

#[cfg(test)]
mod tests;
