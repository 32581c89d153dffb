//! What plugin runs need.

use std::{path::PathBuf, time::Duration};

use tokio_util::task::TaskTracker;

use super::LiveRuns;

/// The limits of each run.
#[derive(Clone, Debug)]
pub struct RunLimits {
    /// The most bytes of stdout; one more ends the run.
    pub stdout: usize,
    /// The bytes that are kept of the end of stderr.
    pub stderr: usize,
    /// The time between SIGTERM and SIGKILL for a plugin that exceeds its timeout, and between the refusal and SIGKILL for
    /// one that calls the broker.
    pub terminate_grace: Duration,
    /// How long the run waits for child processes to close stdout after the plugin has exited.
    pub stdout_grace: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            stdout: 1 << 20,
            stderr: 64 << 10,
            terminate_grace: Duration::from_secs(2),
            stdout_grace: Duration::from_millis(500),
        }
    }
}

/// What plugin runs need.
#[derive(Clone, Debug)]
pub struct RunnerParts {
    /// The limits of each run.
    pub limits: RunLimits,
    /// This program, which is started as the launcher of each plugin.
    pub launcher: PathBuf,
    /// Where each run gets a separate directory, which is removed after the run. It must be an absolute path that no other
    /// user can write to.
    pub scratch: PathBuf,
    /// Owns what continues after a run, such as the removal of its directory.
    pub tasks: TaskTracker,
    /// Gets every run.
    pub live: LiveRuns,
}
