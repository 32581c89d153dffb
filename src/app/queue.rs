//! A bounded queue of bytes, and the thread that writes them. What does not fit is dropped and counted, so that nothing
//! waits for a slow reader or disk.

use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

/// The most bytes that wait to be written; the writer may hold as many again.
pub(super) const PENDING: usize = 512 * 1024;

/// Takes whole records without waiting. Clones share one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteQueue {
    shared: Arc<SharedQueue>,
}

#[derive(Debug, Default)]
struct SharedQueue {
    state: Mutex<QueueState>,
    /// Signals that there is something to write, or that everything is written.
    changed: Condvar,
    /// Cancelled when the thread that writes has ended.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct QueueState {
    batch: Batch,
    writing: bool,
}

/// What is written with one turn.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u64,
    /// Records that were dropped, or that the writer returned as lost, before the end of this batch.
    pub(super) lost: u64,
}

impl ByteQueue {
    /// Starts the thread `name`, which calls `write` with one batch after the other. `write` returns the number of records
    /// that the next batch has as lost. If the thread cannot be started, it counts as ended.
    pub(super) fn start(
        &self,
        name: &str,
        mut write: impl FnMut(Batch) -> u64 + Send + 'static,
    ) -> io::Result<()> {
        let (queue, ended) = (self.clone(), self.shared.ended.clone().drop_guard());
        // An earlier thread may have ended while it wrote.
        self.lock().writing = false;
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _ended = ended;
            loop {
                let lost = write(queue.next_batch());
                let mut state = queue.lock();
                state.writing = false;
                state.batch.lost += lost;
                if state.batch.bytes.is_empty() {
                    queue.shared.changed.notify_all();
                }
            }
        });
        started.map(drop)
    }

    pub(super) fn push(&self, record: &[u8]) {
        let mut state = self.lock();
        if state.batch.bytes.len() + record.len() > PENDING {
            state.batch.lost += 1;
            return;
        }
        state.batch.bytes.extend_from_slice(record);
        state.batch.records += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    pub(super) fn flush(&self, limit: Duration) {
        let is_busy = |state: &mut QueueState| state.writing || !state.batch.bytes.is_empty();
        drop(self.shared.changed.wait_timeout_while(self.lock(), limit, is_busy));
    }

    /// Whether the thread that writes has ended. Another one may be started then, for what it left.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.is_cancelled()
    }

    /// Resolves when the thread that writes has ended, which happens only if it panics or could not be started.
    pub(super) async fn ended(&self) {
        self.shared.ended.cancelled().await;
    }

    fn next_batch(&self) -> Batch {
        let waited = self.shared.changed.wait_while(self.lock(), |state| state.batch.bytes.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
        mem::take(&mut state.batch)
    }

    /// The state is consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    impl super::ByteQueue {
        /// The bytes that wait, and the number of lost records.
        pub(in crate::app) fn waiting(&self) -> (usize, u64) {
            let state = self.lock();
            (state.batch.bytes.len(), state.batch.lost)
        }
    }
}
