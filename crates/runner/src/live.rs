//! The plugin runs in progress, by the process ids of their launchers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::launch::{ancestor, hold_socket};

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
    runs: Vec<Arc<CallingRun>>,
    /// Launchers that are being started, whose process ids are not known yet.
    starting: usize,
}

/// A run in progress, of which a process has called the broker.
#[derive(Debug)]
pub struct CallingRun {
    launcher: u32,
    refused: CancellationToken,
}

impl LiveRuns {
    /// The run that the process `pid` belongs to: that of a plugin, or of any process below it. Reads `/proc` if there is a
    /// run, and memory otherwise.
    pub fn find(&self, pid: u32) -> Option<Arc<CallingRun>> {
        let runs = self.lock().runs.clone();
        let launcher = if runs.is_empty() { None } else { ancestor(pid, &launchers(&runs)) }?;
        // The last one: the kernel may have used the id again, for a younger run.
        runs.into_iter().rfind(|run| run.launcher == launcher)
    }

    /// Whether a process of a run may have the connection of a process that was reaped, and whose ancestors are not known.
    /// A process that ends leaves its connections to processes that it has started, and those of a run are below its
    /// launcher: so it is not one of a run if none of them has such a socket.
    pub fn may_have_inherited(&self) -> bool {
        let runs = self.lock().runs.clone();
        !runs.is_empty() && hold_socket(&launchers(&runs))
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.lock().runs.is_empty()
    }

    /// Adds a run until the result is dropped.
    pub(super) fn add(&self, launcher: u32) -> LiveRun {
        let run = Arc::new(CallingRun { launcher, refused: CancellationToken::new() });
        self.lock().runs.push(Arc::clone(&run));
        LiveRun { run, runs: self.clone() }
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
            let is_launcher = list.runs.iter().any(|run| run.launcher == ended.as_raw().cast_unsigned());
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

impl CallingRun {
    /// Notes that its request is refused. The run ends soon.
    pub fn refused(&self) {
        self.refused.cancel();
    }
}

fn launchers(runs: &[Arc<CallingRun>]) -> Vec<u32> {
    runs.iter().map(|run| run.launcher).collect()
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
    run: Arc<CallingRun>,
    runs: LiveRuns,
}

impl LiveRun {
    /// Cancelled when a request of the run is refused.
    pub(super) fn refused(&self) -> CancellationToken {
        self.run.refused.clone()
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        self.runs.lock().runs.retain(|run| !Arc::ptr_eq(run, &self.run));
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
        assert!(runs.find(own).is_none());
        let (run, same_id) = (runs.clone().add(parent), runs.add(parent));
        assert!(runs.find(own).is_some() && runs.find(parent).is_some());
        drop(run);
        assert!(runs.find(own).is_some(), "the id is in use by another run");
        drop(same_id);
        assert!(runs.find(own).is_none() && runs.is_empty());
    }

    #[test]
    fn the_run_that_the_process_belongs_to_is_the_one_that_gets_the_refusal() {
        let runs = LiveRuns::default();
        let other = runs.add(u32::MAX);
        let (ended, run) = (runs.add(std::process::id()), runs.add(std::process::id()));
        runs.find(std::process::id()).unwrap().refused();
        assert!(run.refused().is_cancelled());
        assert!(!other.refused().is_cancelled() && !ended.refused().is_cancelled());
    }
}
