//! Who is at the other end of a connection, as the kernel recorded it when the peer connected.

use std::{io, path::Path, sync::Arc};

use rustix::process::geteuid;
use tokio::net::UnixStream;

use crate::linux::{Namespaces, Peer, ProcessPin, executable, overflow_ids, status};

/// The most processes whose facts may wait to be read, because each of them takes an open file. The facts of further ones
/// should be read immediately.
pub(crate) const PINNED: usize = 8;

/// Reads the identity of peers. One reference for itself, and one for each process whose facts are not read yet.
#[derive(Debug)]
pub(crate) struct Identities {
    /// `None`: `/proc` does not show the processes of this PID namespace.
    home: Option<Namespaces>,
    /// The uid of this process.
    own: u32,
    /// The uid and the gid that identify no user and no group.
    overflow: [Option<u32>; 2],
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
    identities: Arc<Identities>,
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
    pub(crate) fn new() -> Arc<Self> {
        let (home, own) = (Namespaces::of_this_process(), geteuid().as_raw());
        Arc::new(Self { home, own, overflow: overflow_ids() })
    }

    /// The identity of the peer of `stream`, which the listener of that number accepted. The kernel recorded uid, gid and
    /// process ID when the peer connected.
    pub(crate) fn of(self: &Arc<Self>, stream: &UnixStream, listener: usize) -> io::Result<PeerIdentity> {
        let peer = Peer::of(stream, listener)?;
        // A process of another PID namespace is known by its uid and gid only, and so is every process if `/proc` shows
        // another PID namespace than that of this process.
        let process = peer.pid.filter(|_| self.home.is_some()).map(|pid| {
            let pin = ProcessPin::of(stream, pid);
            PeerProcess { peer, pid, pin, identities: Arc::clone(self) }
        });
        let (uid, gid) = (self.user(peer.uid), self.group(peer.gid));
        Ok(PeerIdentity { peer, uid, gid, is_owner: self.is_owner(peer.uid), process })
    }

    /// Whether the user of this process can be identified.
    pub(crate) fn identify_own(&self) -> bool {
        self.user(self.own).is_some()
    }

    /// The user of `uid`; `None`: the number identifies none.
    pub(crate) fn user(&self, uid: u32) -> Option<u32> {
        Some(uid).filter(|uid| *uid != u32::MAX && Some(*uid) != self.overflow[0])
    }

    /// The group of `gid`; `None`: the number identifies none.
    fn group(&self, gid: u32) -> Option<u32> {
        Some(gid).filter(|gid| *gid != u32::MAX && Some(*gid) != self.overflow[1])
    }

    /// Whether `uid` is that of this process.
    pub(crate) fn is_own(&self, uid: u32) -> bool {
        uid == self.own
    }

    /// Whether `uid` is this process's or root's.
    fn is_owner(&self, uid: u32) -> bool {
        uid == self.own || uid == 0
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
        Arc::strong_count(&self.identities) > PINNED
    }

    /// What `/proc` says about the process, which does not block. It counts only if the process still runs afterwards.
    pub fn facts(&self) -> ProcessFacts {
        let (peer, identities) = (self.peer, &*self.identities);
        let (owner, groups) = status(self.pid);
        let is_same = owner == Some((peer.uid, peer.gid));
        let [mounts, processes] =
            identities.home.as_ref().map_or([false; 2], |home| home.shared_with(self.pid));
        // A path means the same file only in the same mount namespace.
        let executable = if mounts { executable(self.pid) } else { None };
        if !is_same || !self.is_alive() {
            return ProcessFacts::default();
        }
        ProcessFacts {
            groups: groups.into_iter().filter_map(|gid| identities.group(gid)).collect(),
            executable,
            is_beside: peer.uid == identities.own && mounts && processes,
        }
    }
}

#[cfg(test)]
mod tests;
