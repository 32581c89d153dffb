//! The end: no new work, answers for those who wait, a deadline.

use std::time::Duration;

use tonic_health::ServingStatus;

use super::{Bound, SERVICES};

/// How long a drain may take.
pub const GRACE: Duration = Duration::from_secs(10);

/// How a drain ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drained {
    /// Everybody was answered.
    Whole,
    /// The deadline passed first; what was left is cut off.
    CutOff {
        /// Connections and runs that were left.
        left: usize,
    },
}

impl Bound {
    /// Health says so first; then runs are ended and those who wait for one are told to ask the successor, requests
    /// under way are answered, connections close. At most [`GRACE`].
    pub async fn drain(self) -> Drained {
        for service in SERVICES {
            self.health.set_service_status(service, ServingStatus::NotServing).await;
        }
        self.health.set_service_status("", ServingStatus::NotServing).await;
        self.draining.cancel();
        self.tasks.close();
        let drained = tokio::time::timeout(GRACE, self.tasks.wait()).await;
        // The name goes before the listener: whoever comes now finds nothing, and tries again until a successor is there.
        drop(self.keeper);
        drop(self.listeners);
        drained.map_or(Drained::CutOff { left: self.tasks.len() }, |()| Drained::Whole)
    }
}
