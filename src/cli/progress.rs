//! One line on a terminal that says what takes so long.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    time::Duration,
};

use tokio::time::timeout;

/// What takes no longer than this needs no explanation.
const SILENCE: Duration = Duration::from_secs(1);

/// A line on stderr that is written over and erased at the end; nothing where stderr is no terminal.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    /// Says `what` instead of what was said before.
    pub(super) fn say(&self, what: &str) {
        if self.shown {
            let _unseen = write!(io::stderr(), "\r\x1b[K{what}");
        }
    }
}

/// The outcome of `work`. On a terminal, what takes more than a second is explained by `what`.
pub(super) async fn explained<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(outcome) = timeout(SILENCE, &mut work).await {
        return outcome;
    }
    let progress = Progress::new();
    progress.say(what);
    work.await
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}
