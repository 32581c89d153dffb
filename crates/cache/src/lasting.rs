//! Callers that need a credential to live for some time: how often the plugin runs for them. Pure.

use std::time::Duration;

use super::rejection::PAUSE;
use credbroker_credential::{Issued, Now};

/// The last run that returned the credential that is held, for any reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRun {
    /// Since boot: a step of the wall clock must not start runs.
    at: Duration,
    /// How long the credential was valid then.
    left: Duration,
}

impl LastRun {
    pub(crate) fn of(issued: &Issued, now: Now) -> Self {
        Self { at: now.boot, left: issued.left(now) }
    }

    /// Whether a run at `now` may bring a credential that lives for `min_lifetime`. If the last one did not, the next one does
    /// not before a third of its time has passed. If it did, callers that need nearly all of its time may not run the plugin
    /// for each request.
    pub(crate) fn is_repeatable(self, min_lifetime: Duration, now: Now) -> bool {
        let pause = if self.left < min_lifetime { (self.left / 3).max(PAUSE) } else { PAUSE };
        now.boot >= self.at.saturating_add(pause)
    }
}
