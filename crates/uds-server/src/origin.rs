//! Which namespaces a peer shares with the broker.

use std::path::PathBuf;

use rustix::process::getpid;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        getpid().as_raw_nonzero().get()
    }

    #[test]
    fn a_process_with_the_same_namespaces_shares_them() {
        let home = Home::of_this_process();
        assert_eq!(home.shared(own_pid()), SharedWithBroker { mounts: true, processes: true });
        assert_eq!(home.shared(i32::MAX), SharedWithBroker::default(), "it has ended");
        assert_eq!(Home::blind().shared(own_pid()), SharedWithBroker::default());
    }

    #[test]
    fn each_other_namespace_is_seen_and_one_that_cannot_be_read_is_not_shared() {
        for other in [Some(PathBuf::from("mnt:[1]")), None] {
            let home = Home(Some(Namespaces { mount: other.clone(), ..Namespaces::of(own_pid()) }));
            assert_eq!(home.shared(own_pid()), SharedWithBroker { mounts: false, processes: true });
            let home = Home(Some(Namespaces { pid: other, ..Namespaces::of(own_pid()) }));
            assert_eq!(home.shared(own_pid()), SharedWithBroker { mounts: true, processes: false });
        }
        let home = Home(Some(Namespaces::default()));
        assert_eq!(home.shared(i32::MAX), SharedWithBroker::default(), "neither can be read");
    }
}
