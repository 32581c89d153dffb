//! Closes the connections of peers that make no call, or do not read their responses.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Notify;
use tracing::debug;

use crate::{
    linux::coarse,
    traffic::{Progress, Traffic},
};

/// Time from accept to the first call.
const FIRST_CALL: Duration = Duration::from_secs(5);
/// Interval between checks, and the number of checks without progress after which a connection ends.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOKS: u8 = 6;

/// Ends connections whose peers make no call or do not read. One timer serves all connections, so a request sets none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog {
    watched: Arc<Mutex<Vec<WatchedConnection>>>,
    occupied: Arc<Notify>,
}

#[derive(Debug)]
struct WatchedConnection {
    traffic: Weak<Traffic>,
    progress: Progress,
    /// Number of checks without progress.
    looks: u8,
}

impl Watchdog {
    /// Watches a connection as long as it lasts.
    pub(crate) fn watch(&self, traffic: &Arc<Traffic>) {
        let (traffic, progress) = (Arc::downgrade(traffic), Progress::default());
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.push(WatchedConnection { traffic, progress, looks: 0 });
        if watched.len() == 1 {
            self.occupied.notify_one();
        }
    }

    /// Checks all connections while there are any, each time that `tick` has waited for the interval.
    pub(crate) async fn run<F: Future<Output = ()>>(&self, tick: impl Fn(Duration) -> F) {
        loop {
            let is_empty = self.watched.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            if is_empty {
                self.occupied.notified().await;
            }
            tick(LOOK_EVERY).await;
            self.look(coarse());
        }
    }

    fn look(&self, now: Duration) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain_mut(|connection| {
            let Some(traffic) = connection.traffic.upgrade() else { return false };
            if traffic.is_silent() && traffic.idle(now) >= Some(FIRST_CALL) {
                debug!("a peer made no call: its connection is closed");
                traffic.give_way();
                return false;
            }
            let progress = traffic.progress();
            let is_stuck = progress.is_stuck_since(connection.progress);
            connection.looks = if is_stuck { connection.looks + 1 } else { 0 };
            connection.progress = progress;
            if connection.looks < LOOKS {
                return true;
            }
            debug!("a peer took nothing for half a minute: its connection is closed");
            traffic.stall();
            false
        });
        watched.shrink_to(64);
    }
}

#[cfg(test)]
mod tests;
