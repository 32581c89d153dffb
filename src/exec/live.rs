//! The plugin runs in progress, by the process ids of their launchers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::launch::is_descendant;

/// The launchers of all runs in progress. Clones share one list.
///
/// A launcher is in the list before its plugin starts, and until it is reaped.
#[derive(Clone, Debug, Default)]
pub struct LiveRuns {
    launchers: Arc<Mutex<Vec<u32>>>,
}

impl LiveRuns {
    /// Whether the process `pid` belongs to a run: a plugin, or any process below it. Reads `/proc` if there is a run, and
    /// memory otherwise.
    pub fn include(&self, pid: u32) -> bool {
        let launchers = self.lock().clone();
        !launchers.is_empty() && is_descendant(pid, &launchers)
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Adds a run until the result is dropped.
    pub(super) fn add(&self, launcher: u32) -> LiveRun {
        self.lock().push(launcher);
        LiveRun { launcher, runs: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.launchers.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut launchers = self.runs.lock();
        // One of them: the kernel may have used the id again, for a younger run.
        if let Some(at) = launchers.iter().position(|launcher| *launcher == self.launcher) {
            launchers.swap_remove(at);
        }
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
        assert!(!runs.include(own) && runs.lock().is_empty());
    }
}
