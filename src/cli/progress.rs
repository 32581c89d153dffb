//! One line on a terminal that says what takes so long.

use std::io::{self, IsTerminal as _, Write as _};

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

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}
