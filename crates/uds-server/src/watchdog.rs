//! Ends the connections of peers that make no call, or do not read their answers.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tracing::debug;

use crate::traffic::Traffic;

/// Time from accept to the first call.
const FIRST_CALL: Duration = Duration::from_secs(5);
/// Number of looks without progress after which a connection ends.
const LOOKS: u32 = 6;

/// A connection that is served, and what was seen of it. One timer looks at all connections, so a request sets none.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) traffic: Arc<Traffic>,
    progress: [Option<u64>; 2],
    /// Number of looks without progress.
    looks: u32,
}

impl Served {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        Self { traffic: Arc::clone(traffic), progress: [None; 2], looks: 0 }
    }

    pub(crate) fn look(&mut self, now: Duration) {
        let traffic = &self.traffic;
        if traffic.begun() == 0 && traffic.idle(now) >= Some(FIRST_CALL) {
            debug!("a peer made no call: its connection is closed");
            return traffic.end.cancel();
        }
        let progress = traffic.progress();
        let earlier = mem::replace(&mut self.progress, progress);
        let is_stuck = progress.iter().zip(earlier).any(|(now, earlier)| now.is_some() && *now == earlier);
        self.looks = if is_stuck { self.looks + 1 } else { 0 };
        if self.looks == LOOKS {
            debug!("a peer took nothing for half a minute: its connection is closed");
            traffic.stalled.store(true, Ordering::Relaxed);
            traffic.end.cancel();
        }
    }
}

#[cfg(test)]
mod tests;
