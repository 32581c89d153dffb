//! What the kernel says about the process of a peer, and its cheapest clock.

use std::{io, path::Path, time::Duration};

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
    time::{ClockId, clock_gettime},
};
use tokio::net::UnixStream;

/// The most bytes that are read of a file in `/proc`. Groups that do not fit are not known.
const STATUS: usize = 16 * 1024;

/// Time since boot without suspend, a few milliseconds late: reading it costs less than an atomic operation on contended
/// memory.
pub(super) fn coarse() -> Duration {
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

#[cfg(test)]
mod tests;
