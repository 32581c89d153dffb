//! The process at the other end of a connection.

use std::io;

use tokio::net::UnixStream;

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
}

impl Peer {
    /// Reads `SO_PEERCRED`.
    pub(crate) fn of(stream: &UnixStream, listener: usize) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        let pid = credentials.pid().filter(|pid| *pid > 0);
        let (uid, gid) = (credentials.uid(), credentials.gid());
        Ok(Self { listener, uid, gid, pid })
    }

    /// The process that limits per process count: the uid in the upper half, the process ID in the lower one. Peers in
    /// other PID namespaces have no process ID, so all of one uid count as one process: names that they send prove
    /// nothing.
    pub fn process(&self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.pid.map_or(0, i32::cast_unsigned))
    }
}
