//! What a command shows while it waits, and the signals that end it.

use std::{
    future::pending,
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

/// Work that takes no longer than this shows no line.
const DELAY: Duration = Duration::from_secs(1);

/// A line on stderr that is overwritten by the next one and erased at the end; not shown if stderr is not a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    /// Replaces the line by `what`.
    pub(super) fn show(&self, what: &str) {
        if self.shown {
            let _ignored = write!(io::stderr(), "\r\x1b[K{what}");
        }
    }
}

/// Returns the outcome of `work`. After a second, a terminal shows `what`.
pub(super) async fn explained<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(outcome) = timeout(DELAY, &mut work).await {
        return outcome;
    }
    let progress = Progress::new();
    progress.show(what);
    work.await
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
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
        None => pending().await,
    }
}
