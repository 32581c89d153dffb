//! All calls that only Linux has: about peers and their processes, its cheapest clock, and sockets and held files.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Gid, Mode, OFlags},
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
    process::{Pid, PidfdFlags, Resource, getpid, getrlimit, pidfd_open},
    time::{ClockId, clock_gettime},
};
use tokio::net::UnixStream;

/// The most bytes that are read of a file in `/proc`. Groups that do not fit are not known.
const STATUS: usize = 16 * 1024;
/// What the kernel uses unless `/proc/sys/kernel/overflowuid` says otherwise.
const OVERFLOW: u32 = 65_534;

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

/// Time since boot without suspend, a few milliseconds late, for less than an atomic operation on contended memory.
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

    /// Whether the process still runs: then everything that was read under its ID since it was pinned is about it.
    pub(crate) fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)), Ok(0))
    }
}

/// Effective uid and gid, and supplementary groups, of a process. Reads `/proc/PID/status`, which does not block.
pub(crate) fn status(pid: i32) -> (Option<(u32, u32)>, Vec<u32>) {
    let mut bytes = Vec::with_capacity(2048);
    let file = File::open(format!("/proc/{pid}/status"));
    if file.and_then(|file| file.take(STATUS as u64).read_to_end(&mut bytes)).is_err() {
        return (None, Vec::new());
    }
    // Up to the last whole line or number: half a number is another number.
    if bytes.len() == STATUS {
        bytes.truncate(bytes.iter().rposition(u8::is_ascii_whitespace).unwrap_or_default());
    }
    parse(&String::from_utf8_lossy(&bytes))
}

fn parse(text: &str) -> (Option<(u32, u32)>, Vec<u32>) {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    // Real, effective, saved and for files.
    let effective = |name| field(name)?.split_whitespace().nth(1)?.parse().ok();
    let groups = field("Groups").unwrap_or_default();
    let groups = groups.split_whitespace().filter_map(|gid| gid.parse().ok());
    (effective("Uid").zip(effective("Gid")), groups.collect())
}

/// The executable of a process. `None`: the broker may not read it.
pub(crate) fn executable(pid: i32) -> Option<Box<Path>> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok().map(Into::into)
}

/// Mount and PID namespace of a process, as `/proc` names them, for example `mnt:[4026531841]`. `None`: the broker may not
/// read it.
#[derive(Debug)]
pub(crate) struct Namespaces([Option<PathBuf>; 2]);

impl Namespaces {
    /// Those of this process. `None`: `/proc` shows another PID namespace, so it cannot identify peers.
    pub(crate) fn of_this_process() -> Option<Self> {
        let own = getpid().as_raw_nonzero().get();
        let shown = std::fs::read_link("/proc/self").ok()?;
        (shown.to_str() == Some(&own.to_string())).then(|| Self::of(own))
    }

    /// Those of the process `pid`. Reads `/proc`, which does not block.
    fn of(pid: i32) -> Self {
        Self(["mnt", "pid"].map(|name| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok()))
    }

    /// Whether the process `pid` shares the mounts, so that a path means the same file to both, and the PID namespace.
    pub(crate) fn shared_with(&self, pid: i32) -> [bool; 2] {
        let (Self([own_mounts, own_processes]), Self([mounts, processes])) = (self, Self::of(pid));
        [mounts.is_some() && mounts == *own_mounts, processes.is_some() && processes == *own_processes]
    }
}

/// The numbers that the kernel shows for every uid and for every gid that it cannot map; `None`: it can map all. What `/proc`
/// does not show counts as not mapped.
pub(crate) fn overflow_ids() -> [Option<u32>; 2] {
    ["uid", "gid"].map(|kind| {
        let map = std::fs::read_to_string(format!("/proc/self/{kind}_map")).unwrap_or_default();
        let number = std::fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}")).ok();
        let number = number.and_then(|text| text.trim().parse().ok());
        (!maps_all(&map)).then(|| number.unwrap_or(OVERFLOW))
    })
}

/// Whether a `uid_map` or `gid_map` maps every number to itself, as that of the first user namespace does, so that no number
/// can mean several users.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A socket that is bound to `path`, which only its own user can open.
pub(crate) fn bind_private(path: &Path) -> io::Result<OwnedFd> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // bind creates the file with the descriptor's mode less the umask, so the file is never accessible to others.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Connects without blocking. A full backlog returns `EAGAIN`.
pub(crate) fn connect_now(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Accepts a connection that waits already.
pub(crate) fn accept_now(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// A file that its path need not name any longer, held without opening it.
#[derive(Debug)]
pub(crate) struct HeldFile(File);

impl HeldFile {
    /// The file at `path`, which is not followed if it is a link.
    pub(crate) fn at(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(|held| Self(held.into()))
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    pub(crate) fn set_group(&self, group: u32) -> Result<(), Errno> {
        rustix::fs::chownat(&self.0, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        // An `O_PATH` descriptor does not support fchmod, but its link in /proc does support chmod.
        rustix::fs::chmod(format!("/proc/self/fd/{}", self.0.as_raw_fd()), Mode::from_raw_mode(mode))
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
