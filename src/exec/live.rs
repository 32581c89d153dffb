//! The processes of the plugin runs in progress, for the server: it does not serve their descendants.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The process IDs of the plugin runs in progress. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LiveRuns {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Runs in progress, including those whose process is only about to start.
    runs: AtomicUsize,
    pids: Mutex<HashSet<i32>>,
}

impl LiveRuns {
    /// Notes a run, before its process is started.
    pub(crate) fn begin(&self) -> LiveRun {
        self.shared.runs.fetch_add(1, Ordering::SeqCst);
        LiveRun { shared: Arc::clone(&self.shared), pid: None }
    }

    /// Whether there is no run.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.runs.load(Ordering::SeqCst) == 0
    }

    /// Whether a run started the process `pid`.
    pub(crate) fn contains(&self, pid: i32) -> bool {
        self.shared.lock().contains(&pid)
    }
}

/// A run in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct LiveRun {
    shared: Arc<Shared>,
    pid: Option<i32>,
}

impl LiveRun {
    /// Sets the process ID of the run, which leads its own process group.
    pub(crate) fn started(&mut self, pid: Option<u32>) {
        self.pid = pid.and_then(|pid| i32::try_from(pid).ok());
        self.shared.lock().extend(self.pid);
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.shared.lock().remove(&pid);
        }
        self.shared.runs.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_known_from_before_its_start_until_it_is_over() {
        let runs = LiveRuns::default();
        assert!(runs.is_idle());
        let mut run = runs.begin();
        assert!(!runs.is_idle() && !runs.contains(7));
        run.started(Some(7));
        assert!(runs.contains(7) && !runs.contains(8));
        drop(run);
        assert!(runs.is_idle() && !runs.contains(7));
    }
}
