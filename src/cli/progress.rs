//! A line on a terminal that says what a command is waiting for.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    time::Duration,
};

use tokio::time::timeout;

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
