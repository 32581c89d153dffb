//! Processes that outlive the run that started them.

use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

/// Adopts the processes that plugins leave behind, and reaps each when it ends. Never returns.
///
/// Without it, they would become zombies when the broker is the first process of a container. It reaps every child of this
/// process, so nothing else in the process can wait for one.
pub async fn reap_orphans() {
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
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        // The signal handler is never removed.
        let _signalled = ended.recv().await;
    }
}
