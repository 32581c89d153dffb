//! Processes that outlive the run that started them.

use rustix::process::{getpid, set_child_subreaper};
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

use super::LiveRuns;

/// Adopts the processes that plugins leave behind, and reaps each when it ends. Never returns.
///
/// Without it, they would become zombies when the broker is the first process of a container. It reaps every child of this
/// process but the launchers of `runs`, so nothing else in the process can wait for one.
pub async fn reap_orphans(runs: LiveRuns) {
    if let Err(error) = set_child_subreaper(Some(getpid())) {
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
            () = runs.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests;
