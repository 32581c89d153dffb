//! Whether the hub can be read.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// Whether the hub was read, and why it cannot be read now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubState {
    /// All profiles were read at least once.
    pub synced: bool,
    /// Why the hub cannot be read now.
    pub problem: Option<Arc<str>>,
}

impl HubState {
    /// Why the hub was not read, for a request that needs a profile.
    pub fn why_unread(self) -> Arc<str> {
        self.problem.unwrap_or_else(|| "the hub has not answered yet".into())
    }
}

/// The attempts to read the hub.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HubReads {
    /// How many have succeeded or failed.
    pub ended: u64,
    /// When the next one begins; `None`: one is in progress.
    next: Option<Instant>,
}

#[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the pause does")]
impl HubReads {
    /// The time until the next one begins; zero: it is in progress.
    pub fn pause(&self) -> Duration {
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()))
    }

    pub(super) fn begin(&mut self) {
        self.next = None;
    }

    pub(super) fn end(&mut self, pause: Option<Duration>) {
        self.ended += 1;
        self.next = pause.and_then(|pause| Instant::now().checked_add(pause));
    }
}
