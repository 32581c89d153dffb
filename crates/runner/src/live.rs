//! The plugin runs in progress, by the process ids of their launchers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use tokio::sync::Notify;

use crate::launch::{hold_socket, is_descendant};

/// The launchers of all runs in progress. Clones share one list.
///
/// A launcher is in the list before its plugin starts, and until it is reaped.
#[derive(Clone, Debug, Default)]
pub struct LiveRuns(Arc<RunsInProgress>);

#[derive(Debug, Default)]
struct RunsInProgress {
    list: Mutex<RunList>,
    /// A launcher was started or reaped.
    changed: Notify,
}

#[derive(Debug, Default)]
struct RunList {
    launchers: Vec<u32>,
    /// Launchers that are being started, whose process ids are not known yet.
    starting: usize,
}

impl LiveRuns {
    /// Whether the process `pid` belongs to a run: a plugin, or any process below it. Reads `/proc` if there is a run, and
    /// memory otherwise.
    pub fn include(&self, pid: u32) -> bool {
        let launchers = self.lock().launchers.clone();
        !launchers.is_empty() && is_descendant(pid, &launchers)
    }

    /// Whether a process of a run may have the connection of a process that was reaped, and whose ancestors are not known.
    /// A process that ends leaves its connections to processes that it has started, and those of a run are below its
    /// launcher: so it is not one of a run if none of them has such a socket.
    pub fn may_have_inherited(&self) -> bool {
        let launchers = self.lock().launchers.clone();
        !launchers.is_empty() && hold_socket(&launchers)
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.lock().launchers.is_empty()
    }

    /// Adds a run until the result is dropped.
    pub(super) fn add(&self, launcher: u32) -> LiveRun {
        self.lock().launchers.push(launcher);
        LiveRun { launcher, runs: self.clone() }
    }

    /// Must be called before a launcher is started.
    pub(super) fn start(&self) -> Starting {
        self.lock().starting += 1;
        Starting(self.clone())
    }

    /// Reaps the children of this process that have ended and are not launchers.
    ///
    /// The number of a launcher that is not reaped is its own, and so is its session: what uses that number can signal no
    /// other process. So a launcher is reaped by its run only. Until then, children that ended after it may have to wait.
    pub(super) fn reap_others(&self) {
        loop {
            // Held, so that no launcher is started between the look and the reaping.
            let list = self.lock();
            if list.starting > 0 {
                return;
            }
            let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            let Some(ended) = waitid(Id::All, look).ok().and_then(|status| status.pid()) else { return };
            let is_launcher = list.launchers.contains(&ended.as_raw().cast_unsigned());
            if is_launcher || waitid(Id::Pid(ended), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).is_err() {
                return;
            }
        }
    }

    /// Waits until [`reap_others`](Self::reap_others) may find more. For one task.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, RunList> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A launcher that is being started.
#[derive(Debug)]
pub(super) struct Starting(LiveRuns);

impl Starting {
    /// Adds its run until the result is dropped.
    pub(super) fn started(self, launcher: u32) -> LiveRun {
        self.0.add(launcher)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
        self.0.0.changed.notify_one();
    }
}

/// A run in the list.
#[derive(Debug)]
pub(super) struct LiveRun {
    launcher: u32,
    runs: LiveRuns,
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        let launchers = &mut self.runs.lock().launchers;
        // One of them: the kernel may have used the id again, for a younger run.
        if let Some(at) = launchers.iter().position(|launcher| *launcher == self.launcher) {
            launchers.swap_remove(at);
        }
        self.runs.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_a_run_while_its_launcher_is_in_the_list() {
        let runs = LiveRuns::default();
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        assert!(!runs.include(own));
        let (run, same_id) = (runs.clone().add(parent), runs.add(parent));
        assert!(runs.include(own) && runs.include(parent));
        drop(run);
        assert!(runs.include(own), "the id is in use by another run");
        drop(same_id);
        assert!(!runs.include(own) && runs.is_empty());
    }
}
