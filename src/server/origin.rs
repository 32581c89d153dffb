//! Where a peer runs: beside the broker, or elsewhere.

use std::{io, path::PathBuf};

use rustix::process::{geteuid, getpid};

use crate::plugin::Origin;

/// User and namespaces of the broker, to compare those of a peer with.
#[derive(Debug)]
pub(super) struct Home {
    uid: u32,
    /// `None`: `/proc` shows another PID namespace, so it cannot identify peers.
    namespaces: Option<Namespaces>,
}

/// Namespaces as `/proc` names them, for example `mnt:[4026531841]`.
#[derive(Debug, Eq, PartialEq)]
struct Namespaces {
    mount: PathBuf,
    pid: PathBuf,
}

impl Home {
    /// User and namespaces of this process.
    pub(super) fn of_this_process() -> Self {
        let own = getpid().as_raw_nonzero().get();
        let shown =
            std::fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&own.to_string()));
        let namespaces = Namespaces::of(own).ok().filter(|_| shown);
        Self { uid: geteuid().as_raw(), namespaces }
    }

    /// Whether `/proc` shows the processes of the broker's own PID namespace.
    pub(super) fn sees_processes(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Whether the process `pid` has the mounts of the broker, so that a path means the same file to both.
    pub(super) fn shares_mounts(&self, pid: i32) -> bool {
        let mount = std::fs::read_link(format!("/proc/{pid}/ns/mnt"));
        self.namespaces.as_ref().is_some_and(|own| mount.is_ok_and(|mount| mount == own.mount))
    }

    /// Where the process `pid` of user `uid` runs, which has just connected. Reads `/proc`, which does not block.
    ///
    /// `pid` could name another process only if the peer ended and all other PIDs were used since it connected.
    pub(super) fn origin(&self, uid: u32, pid: Option<i32>) -> Origin {
        match (pid, &self.namespaces) {
            (Some(pid), Some(own))
                if uid == self.uid && Namespaces::of(pid).is_ok_and(|peers| peers == *own) =>
            {
                Origin::Beside
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

#[cfg(test)]
impl Home {
    /// One that sees no processes.
    pub(super) fn blind() -> Self {
        Self { namespaces: None, ..Self::of_this_process() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        getpid().as_raw_nonzero().get()
    }

    fn origin_of_this_process(change: impl FnOnce(&mut Home)) -> Origin {
        let mut home = Home::of_this_process();
        change(&mut home);
        home.origin(geteuid().as_raw(), Some(own_pid()))
    }

    #[test]
    fn a_process_of_the_same_user_and_namespaces_is_beside_the_broker() {
        assert_eq!(origin_of_this_process(|_| {}), Origin::Beside);
    }

    #[test]
    fn another_user_or_namespace_is_elsewhere_and_so_is_what_proc_does_not_show() {
        let other = || PathBuf::from("mnt:[1]");
        let changes: [fn(&mut Home, PathBuf); 4] = [
            |home, _| home.uid += 1,
            |home, other| home.namespaces.as_mut().unwrap().mount = other,
            |home, other| home.namespaces.as_mut().unwrap().pid = other,
            |home, _| home.namespaces = None,
        ];
        for change in changes {
            assert_eq!(origin_of_this_process(|home| change(home, other())), Origin::Elsewhere);
        }
        let origin = |pid| Home::of_this_process().origin(geteuid().as_raw(), pid);
        assert_eq!(origin(None), Origin::Elsewhere, "it is in another PID namespace");
        assert_eq!(origin(Some(i32::MAX)), Origin::Elsewhere, "it has ended");
    }
}
