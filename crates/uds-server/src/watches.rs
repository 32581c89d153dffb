//! The watches of one connection.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::Refusal;

/// Number of open watches from which on a connection collects messages before it writes.
const MANY: usize = 8;

/// Limits the watches of one connection. The limit is below the number of streams, so that another call on the same
/// connection always passes.
#[derive(Clone, Debug)]
pub struct WatchSlots {
    slots: Arc<Semaphore>,
    limit: usize,
    draining: CancellationToken,
}

/// The place of one watch. Dropping it frees the place.
#[derive(Debug)]
pub struct WatchSlot(#[expect(dead_code, reason = "dropping it frees the place")] OwnedSemaphorePermit);

impl WatchSlots {
    /// Slots of one connection.
    pub fn new(limit: usize, draining: CancellationToken) -> Self {
        Self { slots: Arc::new(Semaphore::new(limit)), limit, draining }
    }

    /// Whether enough watches are open that news wake them faster than the connection writes single messages.
    pub(crate) fn are_many(&self) -> bool {
        self.open() >= MANY
    }

    /// How many watches are open.
    pub fn open(&self) -> usize {
        self.limit - self.slots.available_permits()
    }

    /// Takes a slot. A server that drains would end the watch after its first message, so it refuses it: the client watches
    /// again when it reaches the next server.
    ///
    /// # Errors
    ///
    /// No slot is free, or the server drains.
    pub fn acquire(&self) -> Result<WatchSlot, Refusal> {
        if self.draining.is_cancelled() {
            return Err(Refusal::Draining);
        }
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        slot.map(WatchSlot).map_err(|_full| Refusal::Watches(self.limit))
    }
}
