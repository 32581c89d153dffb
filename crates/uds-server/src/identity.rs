//! Who is at the other end of a connection, as the kernel recorded it when the peer connected.

use std::{io, path::Path, sync::Arc};

use rustix::process::geteuid;
use tokio::net::UnixStream;
use tracing::info;

use crate::linux::{Home, Peer, ProcessPin, Status, executable};

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

/// The numbers of the user namespace of the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Users {
    /// The broker's own uid.
    own: u32,
    /// The number that the kernel shows for every uid that it cannot map; `None`: it can map all.
    overflow_uid: Option<u32>,
    /// The same of gids.
    overflow_gid: Option<u32>,
}

/// What the kernel uses unless `/proc/sys/kernel/overflowuid` says otherwise.
const OVERFLOW: u32 = 65_534;

impl Users {
    /// Reads `/proc`. What it does not show counts as not mapped.
    fn of_this_process() -> Self {
        let overflow = |map: &str, number: &str| {
            let map = std::fs::read_to_string(map).unwrap_or_default();
            let number = std::fs::read_to_string(number).ok().and_then(|text| text.trim().parse().ok());
            (!maps_all(&map)).then(|| number.unwrap_or(OVERFLOW))
        };
        Self {
            own: geteuid().as_raw(),
            overflow_uid: overflow("/proc/self/uid_map", "/proc/sys/kernel/overflowuid"),
            overflow_gid: overflow("/proc/self/gid_map", "/proc/sys/kernel/overflowgid"),
        }
    }

    /// The user of `uid`; `None`: the number identifies none.
    fn user(self, uid: u32) -> Option<u32> {
        Some(uid).filter(|uid| *uid != u32::MAX && Some(*uid) != self.overflow_uid)
    }

    /// The group of `gid`; `None`: the number identifies none.
    fn group(self, gid: u32) -> Option<u32> {
        Some(gid).filter(|gid| *gid != u32::MAX && Some(*gid) != self.overflow_gid)
    }

    /// Whether `uid` is the broker's own or root's.
    fn is_owner(self, uid: u32) -> bool {
        uid == self.own || uid == 0
    }

    /// Whether `uid` is the broker's own.
    fn is_own(self, uid: u32) -> bool {
        uid == self.own
    }

    /// Whether the broker can identify its own user.
    fn identify_own(self) -> bool {
        self.user(self.own).is_some()
    }
}

/// Whether a `uid_map` or `gid_map` maps every number to itself, so that no number can mean several users.
fn maps_all(map: &str) -> bool {
    let mut ranges = Vec::new();
    for line in map.lines() {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(length)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        if inside != outside {
            return false;
        }
        ranges.push((inside, length));
    }
    ranges.sort_unstable();
    let mut next = 0;
    for (inside, length) in ranges {
        if inside != next {
            return false;
        }
        next += length;
    }
    // The last number is not a uid.
    next >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
