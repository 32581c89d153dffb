//! Who is at the other end of a connection: read once, when it is accepted.

use std::{io, sync::Arc};

use rustix::process::getpid;
use tokio::net::UnixStream;
use tracing::info;

use super::{
    origin::Home,
    peer::Peer,
    process::{Pin, Status, executable},
    users::Users,
};
use crate::{access::Principal, exec::LiveRuns};

/// Reads the identity of peers.
#[derive(Debug)]
pub(super) struct Identities {
    home: Home,
    users: Users,
    own_pid: i32,
    /// Names of the listeners, in the order of the configuration.
    listeners: Vec<Arc<str>>,
    runs: LiveRuns,
}

/// The identity of one peer.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) peer: Peer,
    pub(super) principal: Principal,
    /// Whether it is a process of a plugin run.
    pub(super) is_of_a_run: bool,
}

impl Identities {
    pub(super) fn new(listeners: Vec<Arc<str>>, runs: LiveRuns) -> Self {
        if !Pin::is_by_kernel() {
            info!(
                "the kernel has no SO_PEERPIDFD (Linux 6.5): a peer is identified by its process ID and owner"
            );
        }
        let own_pid = getpid().as_raw_nonzero().get();
        Self { home: Home::of_this_process(), users: Users::of_this_process(), own_pid, listeners, runs }
    }

    /// The identity of the peer of `stream`, which the listener of that number accepted. The kernel recorded uid, gid and
    /// process ID when the peer connected. All else is read from `/proc`, which does not block, and counts only if the
    /// process still runs afterwards.
    pub(super) fn of(&self, stream: &UnixStream, listener: usize) -> io::Result<Identity> {
        let mut peer = Peer::of(stream, listener)?;
        let mut principal = Principal {
            uid: self.users.user(peer.uid),
            gid: self.users.group(peer.gid),
            groups: Box::default(),
            executable: None,
            listener: self.listeners.get(listener).cloned().unwrap_or_default(),
            is_owner: self.users.is_owner(peer.uid),
        };
        // A process of another PID namespace is known by its uid and gid only, and so is every process if `/proc` shows
        // another PID namespace than that of the broker.
        let Some(pid) = peer.pid.filter(|_| self.home.sees_processes()) else {
            return Ok(Identity { peer, principal, is_of_a_run: false });
        };
        let pin = Pin::of(stream, pid);
        // A plugin and its descendants have the broker's uid. A process that has ended may have given its connection to
        // one that still runs, so it counts as one of a run while there are runs.
        let belongs = || self.runs.include(pid.cast_unsigned());
        let has_ended = || !pin.as_ref().is_some_and(Pin::is_alive);
        let is_of_a_run = self.users.is_own(peer.uid)
            && pid != self.own_pid
            && !self.runs.is_empty()
            // Twice: a process of the chain may have ended between two looks, and its children have another parent then.
            && (belongs() || has_ended() || belongs());
        if let Some(pin) = &pin {
            let status = Status::of(pid).unwrap_or_default();
            let is_same = status.owner == Some((peer.uid, peer.gid));
            let origin = self.home.origin(peer.uid, Some(pid));
            // A path means the same file only in the broker's own mount namespace.
            let executable = if self.home.shares_mounts(pid) { executable(pid) } else { None };
            if pin.is_alive() {
                peer.origin = origin;
                if is_same {
                    principal.groups = self.groups(&status);
                    principal.executable = executable;
                }
            }
        }
        Ok(Identity { peer, principal, is_of_a_run })
    }

    /// Whether the broker can identify its own user.
    pub(super) fn identify_own(&self) -> bool {
        self.users.identify_own()
    }

    fn groups(&self, status: &Status) -> Box<[u32]> {
        status.groups.iter().filter_map(|gid| self.users.group(*gid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Origin;

    #[tokio::test]
    async fn the_kernel_says_who_it_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let identity =
            Identities::new(vec!["other".into(), "apps".into()], LiveRuns::default()).of(&ours, 1).unwrap();
        let Identity { peer, principal, is_of_a_run } = identity;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!((peer.uid, peer.gid, peer.origin), (uid, gid, Origin::Beside));
        assert_eq!(peer.pid, Some(getpid().as_raw_nonzero().get()));
        assert_eq!((principal.uid, principal.gid, &*principal.listener), (Some(uid), Some(gid), "apps"));
        assert_eq!(principal.executable.as_deref(), std::env::current_exe().ok().as_deref());
        let groups: Vec<_> =
            rustix::process::getgroups().unwrap().into_iter().map(rustix::fs::Gid::as_raw).collect();
        assert_eq!(principal.groups.to_vec(), groups);
        assert!(principal.is_owner && !is_of_a_run);
    }

    #[tokio::test]
    async fn without_proc_only_uid_and_gid_are_known() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut identities = Identities::new(Vec::new(), LiveRuns::default());
        identities.home = Home::blind();
        let Identity { peer, principal, .. } = identities.of(&ours, 0).unwrap();
        assert_eq!(peer.origin, Origin::Elsewhere);
        assert!(principal.uid.is_some() && principal.groups.is_empty() && principal.executable.is_none());
    }
}
