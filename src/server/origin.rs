//! Where a peer runs.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt::PeerPidfd},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{geteuid, getpid},
};

use crate::plugin::Origin;

/// The broker's own user and namespaces, which those of a peer are compared with.
#[derive(Debug)]
pub(super) struct Home {
    uid: u32,
    /// `None`: `/proc` does not show this PID namespace, so it says nothing about peers either.
    namespaces: Option<Namespaces>,
}

/// As `/proc` names them, for example `mnt:[4026531841]`.
#[derive(Debug, Eq, PartialEq)]
struct Namespaces {
    mount: PathBuf,
    pid: PathBuf,
}

impl Home {
    /// Of this process.
    pub(super) fn of_this_process() -> Self {
        let own = getpid().as_raw_nonzero().get();
        let shown = std::fs::read_link("/proc/self").is_ok_and(|link| link == PathBuf::from(own.to_string()));
        let namespaces = Namespaces::of(own).ok().filter(|_| shown);
        Self { uid: geteuid().as_raw(), namespaces }
    }

    /// Where the process `pid` of user `uid` runs, which connected `stream`. Reads `/proc`, which does not block.
    pub(super) fn origin(&self, stream: impl AsFd, uid: u32, pid: Option<i32>) -> Origin {
        match (pid, &self.namespaces) {
            (Some(pid), Some(own)) if uid == self.uid => {
                let Ok(process) = process(&stream) else { return Origin::Elsewhere };
                let same = Namespaces::of(pid).is_ok_and(|peers| peers == *own);
                // While it runs, its number belongs to no other process.
                if same && process.is_none_or(|process| is_running(&process)) {
                    Origin::Beside
                } else {
                    Origin::Elsewhere
                }
            }
            _ => Origin::Elsewhere,
        }
    }
}

impl Namespaces {
    fn of(pid: i32) -> io::Result<Self> {
        let link = |name| std::fs::read_link(format!("/proc/{pid}/ns/{name}"));
        Ok(Self { mount: link("mnt")?, pid: link("pid")? })
    }
}

/// A handle of the process that connected. `None`: the kernel is older than 6.5 and has none. Then a process that ends
/// right after it connected could be mistaken for one that got its number since.
fn process(stream: &impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    match getsockopt(stream, PeerPidfd) {
        Ok(process) => Ok(Some(process)),
        Err(Errno::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A handle can be read from once its process has ended.
fn is_running(process: &impl AsFd) -> bool {
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn own_pid() -> Option<i32> {
        Some(getpid().as_raw_nonzero().get())
    }

    fn elsewhere(change: impl FnOnce(&mut Home)) -> Origin {
        let (stream, _peer) = UnixStream::pair().unwrap();
        let mut home = Home::of_this_process();
        change(&mut home);
        home.origin(&stream, geteuid().as_raw(), own_pid())
    }

    #[test]
    fn a_process_of_the_same_user_and_namespaces_is_beside_the_broker() {
        assert_eq!(elsewhere(|_| {}), Origin::Beside);
    }

    #[test]
    fn another_user_or_namespace_is_elsewhere_and_so_is_what_proc_does_not_show() {
        let other = || PathBuf::from("mnt:[1]");
        assert_eq!(elsewhere(|home| home.uid += 1), Origin::Elsewhere);
        assert_eq!(elsewhere(|home| home.namespaces.as_mut().unwrap().mount = other()), Origin::Elsewhere);
        assert_eq!(elsewhere(|home| home.namespaces.as_mut().unwrap().pid = other()), Origin::Elsewhere);
        assert_eq!(elsewhere(|home| home.namespaces = None), Origin::Elsewhere);
        let (stream, _peer) = UnixStream::pair().unwrap();
        let origin = |pid| Home::of_this_process().origin(&stream, geteuid().as_raw(), pid);
        assert_eq!(origin(None), Origin::Elsewhere, "it is in another PID namespace");
        assert_eq!(origin(Some(i32::MAX)), Origin::Elsewhere);
    }

    /// A process that ended gives its number away.
    #[test]
    fn a_process_that_has_ended_is_elsewhere() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = rustix::process::pidfd_open(
            rustix::process::Pid::from_child(&child),
            rustix::process::PidfdFlags::empty(),
        )
        .unwrap();
        child.wait().unwrap();
        assert!(!is_running(&ended));
    }
}
