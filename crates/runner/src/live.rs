//! The plugin runs in progress, by the process ids of their launchers, and the processes that outlive them.

use std::{
    io,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::linux;

/// The launchers of all runs in progress. Clones share one list.
///
/// A launcher is in the list before its plugin starts, and until it is reaped.
#[derive(Clone, Debug, Default)]
pub struct LiveRuns(Arc<RunsInProgress>);

#[derive(Debug, Default)]
struct RunsInProgress {
    list: Mutex<Vec<Arc<CallingRun>>>,
    /// Locked for reading while a launcher is being started, whose process id is not known yet.
    starting: RwLock<()>,
    /// A launcher was started or reaped.
    changed: Notify,
}

/// A run in progress, of which a process has called the broker.
#[derive(Debug)]
pub struct CallingRun {
    launcher: u32,
    /// To be cancelled when its request is refused: the run ends soon.
    pub refused: CancellationToken,
}

impl LiveRuns {
    /// The run of the process `pid`: a plugin's, or of any process below it. Reads `/proc` only if there is a run.
    pub fn find(&self, pid: u32) -> Option<Arc<CallingRun>> {
        let runs = self.lock().clone();
        let launcher = if runs.is_empty() { None } else { linux::ancestor(pid, &launchers(&runs)) }?;
        // The last one: the kernel may have used the id again, for a younger run.
        runs.into_iter().rfind(|run| run.launcher == launcher)
    }

    /// Whether a process of a run may have the connection of a process that was reaped, and whose ancestors are not known.
    /// A process that ends leaves its connections to processes that it has started, and those of a run are below its
    /// launcher: so it is not one of a run if none of them has such a socket.
    pub fn may_have_inherited(&self) -> bool {
        let runs = self.lock().clone();
        !runs.is_empty() && linux::hold_socket(&launchers(&runs))
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Adds a run until the result is dropped.
    pub(crate) fn add(&self, launcher: u32) -> LiveRun {
        let run = Arc::new(CallingRun { launcher, refused: CancellationToken::new() });
        self.lock().push(Arc::clone(&run));
        LiveRun { run, runs: self.clone() }
    }

    /// Starts a launcher, and adds its run until the result is dropped.
    pub(crate) fn spawn(&self, launcher: &mut Command) -> io::Result<(LiveRun, Child)> {
        let starting = self.0.starting.read().unwrap_or_else(PoisonError::into_inner);
        let started = launcher.spawn();
        let started = started.map(|child| (self.add(child.id()), child));
        drop(starting);
        self.0.changed.notify_one();
        started
    }

    /// Reaps the children of this process that have ended and are not launchers.
    ///
    /// The number of a launcher that is not reaped is its own, and so is its session: what uses that number can signal no
    /// other process. So a launcher is reaped by its run only. Until then, children that ended after it may have to wait.
    fn reap_others(&self) {
        loop {
            // Held, so that no launcher is started between the look and the reaping.
            let Ok(_none_is_starting) = self.0.starting.try_write() else { return };
            if !linux::reap(|child| self.lock().iter().all(|run| run.launcher != child)) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<CallingRun>>> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launchers(runs: &[Arc<CallingRun>]) -> Vec<u32> {
    runs.iter().map(|run| run.launcher).collect()
}

#[derive(Debug)]
pub(crate) struct LiveRun {
    pub(crate) run: Arc<CallingRun>,
    runs: LiveRuns,
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        self.runs.lock().retain(|run| !Arc::ptr_eq(run, &self.run));
        self.runs.0.changed.notify_one();
    }
}

/// Adopts the processes that plugins leave behind, and reaps each when it ends. Never returns.
///
/// Without it, they would become zombies when the broker is the first process of a container. It reaps every child of this
/// process but the launchers of `runs`, so nothing else in the process can wait for one.
pub async fn reap_orphans(runs: LiveRuns) {
    if let Err(error) = linux::adopt_orphans() {
        warn!(%error, "cannot adopt the processes that plugins leave behind");
    }
    let mut ended = match signal(SignalKind::child()) {
        Ok(ended) => ended,
        Err(error) => {
            warn!(%error, "cannot reap the processes that plugins leave behind");
            return std::future::pending().await;
        }
    };
    loop {
        runs.reap_others();
        tokio::select! {
            // The signal handler is never removed.
            _ = ended.recv() => {}
            () = runs.0.changed.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
