//! What the kernel says about a peer and its process, and its cheapest clock. All calls that only Linux has.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Resource, getpid, getrlimit, pidfd_open},
    time::{ClockId, clock_gettime},
};
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

/// The most bytes that are read of a file in `/proc`. Groups that do not fit are not known.
const STATUS: usize = 16 * 1024;

/// Time since boot without suspend, a few milliseconds late: reading it costs less than an atomic operation on contended
/// memory.
pub(crate) fn coarse() -> Duration {
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).unwrap_or_default() // never negative
}

/// Keeps a process ID from meaning another process without notice: it knows whether the process has ended.
#[derive(Debug)]
pub(crate) struct ProcessPin(OwnedFd);

impl ProcessPin {
    /// Pins the process at the other end of `stream`, whose ID is `pid`: with `SO_PEERPIDFD` (Linux 6.5), which the kernel
    /// took when the peer connected; otherwise by its ID, so that callers must compare the owner of what they read.
    pub(crate) fn of(stream: &UnixStream, pid: i32) -> Option<Self> {
        let taken = getsockopt(stream, PeerPidfd).ok();
        let by_id = || Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        taken.or_else(by_id).map(Self)
    }

    /// Whether the kernel has `SO_PEERPIDFD`.
    pub(crate) fn is_by_kernel() -> bool {
        std::os::unix::net::UnixStream::pair().is_ok_and(|(ours, _)| getsockopt(&ours, PeerPidfd).is_ok())
    }

    /// Whether the process still runs: then everything that was read under its ID since it was pinned is about it.
    pub(crate) fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)), Ok(0))
    }
}

/// Users and groups of a process.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Status {
    /// Effective uid and gid.
    pub(crate) owner: Option<(u32, u32)>,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
}

impl Status {
    /// Reads `/proc/PID/status`, which does not block.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        read(&format!("/proc/{pid}/status")).map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // Real, effective, saved and for files.
        let effective = |name| field(name)?.split_whitespace().nth(1)?.parse().ok();
        let groups = field("Groups").unwrap_or_default();
        Self {
            owner: effective("Uid").zip(effective("Gid")),
            groups: groups.split_whitespace().filter_map(|gid| gid.parse().ok()).collect(),
        }
    }
}

/// The executable of a process. `None`: the broker may not read it.
pub(crate) fn executable(pid: i32) -> Option<Box<Path>> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok().map(Into::into)
}

fn read(path: &str) -> io::Result<String> {
    use io::Read as _;
    let mut bytes = Vec::with_capacity(2048);
    std::fs::File::open(path)?.take(STATUS as u64).read_to_end(&mut bytes)?;
    // Up to the last whole line or number: half a number is another number.
    if bytes.len() == STATUS {
        let whole = bytes.iter().rposition(u8::is_ascii_whitespace).unwrap_or_default();
        bytes.truncate(whole);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The namespaces of the broker, to compare those of a peer with. `None`: `/proc` shows another PID namespace, so it cannot
/// identify peers.
#[derive(Debug)]
pub(crate) struct Home(Option<Namespaces>);

/// Namespaces as `/proc` names them, for example `mnt:[4026531841]`.
#[derive(Debug, Default, Eq, PartialEq)]
struct Namespaces {
    mount: Option<PathBuf>,
    pid: Option<PathBuf>,
}

/// What a process has in common with the broker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct SharedWithBroker {
    /// The mounts, so that a path means the same file to both.
    pub(crate) mounts: bool,
    /// The PID namespace.
    pub(crate) processes: bool,
}

impl Home {
    /// The namespaces of this process.
    pub(crate) fn of_this_process() -> Self {
        let own = getpid().as_raw_nonzero().get();
        let shown =
            std::fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&own.to_string()));
        Self(shown.then(|| Namespaces::of(own)))
    }

    /// Whether `/proc` shows the processes of the broker's own PID namespace.
    pub(crate) fn sees_processes(&self) -> bool {
        self.0.is_some()
    }

    /// What the process `pid` shares with the broker. Reads `/proc`, which does not block.
    pub(crate) fn shared(&self, pid: i32) -> SharedWithBroker {
        let Some(own) = &self.0 else { return SharedWithBroker::default() };
        let peers = Namespaces::of(pid);
        let shares = |peer: Option<PathBuf>, own: &Option<PathBuf>| peer.is_some() && peer == *own;
        SharedWithBroker { mounts: shares(peers.mount, &own.mount), processes: shares(peers.pid, &own.pid) }
    }
}

impl Namespaces {
    /// Those that the broker may read.
    fn of(pid: i32) -> Self {
        let link = |name| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
        Self { mount: link("mnt"), pid: link("pid") }
    }
}

#[cfg(test)]
impl Home {
    /// One that sees no processes.
    pub(crate) fn blind() -> Self {
        Self(None)
    }
}

/// The limit of open files.
pub(crate) fn open_files() -> usize {
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
