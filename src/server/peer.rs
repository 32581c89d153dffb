//! Who is at the other end, and whether it may ask.

use std::io;

use tokio::net::UnixStream;

use super::origin::Home;
use crate::plugin::Origin;

/// The process that connected, as the kernel recorded it. Integers, taken once: nothing that a peer can choose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// Process id; `None` when the peer is in another pid namespace.
    pub pid: Option<i32>,
    /// Where it runs.
    pub origin: Origin,
}

impl Peer {
    /// From `SO_PEERCRED`, and `/proc` for where it runs.
    pub(super) fn of(stream: &UnixStream, home: &Home) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        let pid = credentials.pid().filter(|pid| *pid > 0);
        let origin = home.origin(credentials.uid(), pid);
        Ok(Self { uid: credentials.uid(), gid: credentials.gid(), pid, origin })
    }

    /// The kernel uses these uids for all users that it cannot map, so they do not identify a user.
    pub(super) fn is_unmapped(&self) -> bool {
        UNMAPPED.contains(&self.uid)
    }
}

/// What the kernel reports for a uid that has no number here (`/proc/sys/kernel/overflowuid`), and for none at all.
const UNMAPPED: [u32; 2] = [65_534, u32::MAX];

/// Who may ask.
#[derive(Clone, Copy, Debug)]
pub struct PeerPolicy {
    own_uid: u32,
}

impl PeerPolicy {
    /// The broker's own uid and root: the two that could take what it holds anyway.
    pub fn own_and_root() -> Self {
        Self { own_uid: rustix::process::geteuid().as_raw() }
    }

    /// Whether the broker's own user may: not if it runs as an unmapped one.
    pub fn serves_its_own(self) -> bool {
        !UNMAPPED.contains(&self.own_uid)
    }

    /// Whether `peer` may ask.
    pub fn allows(self, peer: &Peer) -> bool {
        (peer.uid == self.own_uid || peer.uid == 0) && !peer.is_unmapped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer { uid, gid: 1000, pid: Some(1), origin: Origin::Elsewhere }
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
        let peer = Peer::of(&ours, &Home::of_this_process()).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.origin, Origin::Beside);
        assert_eq!(peer.pid, Some(rustix::process::getpid().as_raw_nonzero().get()));
    }
}
