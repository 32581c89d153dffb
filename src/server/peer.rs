//! The process at the other end of a connection, and whether the broker serves it.

use std::io;

use tokio::net::UnixStream;

use super::origin::Home;
use crate::plugin::Origin;

/// The process that connected, as the kernel recorded it. The peer cannot choose these numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Which listener of the configuration it connected to, counted from 0.
    pub listener: usize,
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// Process ID; `None` if the peer is in another PID namespace.
    pub pid: Option<i32>,
    /// Where the process runs.
    pub origin: Origin,
}

impl Peer {
    /// Reads `SO_PEERCRED`, and `/proc` for the origin.
    pub(super) fn of(stream: &UnixStream, listener: usize, home: &Home) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        let pid = credentials.pid().filter(|pid| *pid > 0);
        let origin = home.origin(credentials.uid(), pid);
        Ok(Self { listener, uid: credentials.uid(), gid: credentials.gid(), pid, origin })
    }

    /// The process that limits per process count: the uid in the upper half, the process ID in the lower one. Peers in
    /// other PID namespaces have no process ID, so all of one uid count as one process: names that they send prove
    /// nothing.
    pub(super) fn process(&self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.pid.map_or(0, i32::cast_unsigned))
    }

    /// Whether the kernel uses this uid for all users that it cannot map, so that it does not identify a user.
    pub(super) fn is_unmapped(&self) -> bool {
        UNMAPPED.contains(&self.uid)
    }
}

/// Uid that the kernel reports for an unmapped user (`/proc/sys/kernel/overflowuid`), and the invalid uid.
const UNMAPPED: [u32; 2] = [65_534, u32::MAX];

/// Which peers the broker serves.
#[derive(Clone, Copy, Debug)]
pub struct PeerPolicy {
    own_uid: u32,
}

impl PeerPolicy {
    /// Allows the broker's own uid and root: both could take the broker's credentials anyway.
    pub fn own_and_root() -> Self {
        Self { own_uid: rustix::process::geteuid().as_raw() }
    }

    /// Whether the broker serves its own user. It does not if that user is unmapped.
    pub fn serves_its_own(self) -> bool {
        !UNMAPPED.contains(&self.own_uid)
    }

    /// Whether the broker serves `peer`.
    pub fn allows(self, peer: &Peer) -> bool {
        (peer.uid == self.own_uid || peer.uid == 0) && !peer.is_unmapped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer { listener: 0, uid, gid: 1000, pid: Some(1), origin: Origin::Elsewhere }
    }

    #[test]
    fn only_the_own_uid_and_root_are_allowed() {
        let policy = PeerPolicy { own_uid: 1000 };
        for (uid, allowed) in [(1000, true), (0, true), (1001, false), (65_534, false), (u32::MAX, false)] {
            assert_eq!(policy.allows(&peer(uid)), allowed, "uid {uid}");
        }
        assert!(policy.serves_its_own());
        let policy = PeerPolicy { own_uid: 65_534 };
        assert!(!policy.serves_its_own());
        assert!(!policy.allows(&peer(65_534)), "every unmapped user has this uid");
    }

    #[tokio::test]
    async fn the_kernel_says_who_it_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours, 0, &Home::of_this_process()).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.origin, Origin::Beside);
        assert_eq!(peer.pid, Some(rustix::process::getpid().as_raw_nonzero().get()));
    }
}
