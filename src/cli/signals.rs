//! The signals that end a command which has something to clean up.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, a service manager, and the end of the terminal. From its creation on they no longer end the process.
pub(super) struct CommandSignals([Option<Signal>; 3]);

impl CommandSignals {
    /// Must be called in a runtime.
    pub(super) fn new() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Self(kinds.map(|kind| signal(kind).ok()))
    }

    /// Returns when one of them arrives.
    pub(super) async fn received(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            () = next(interrupt) => {}
            () = next(terminate) => {}
            () = next(hangup) => {}
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
