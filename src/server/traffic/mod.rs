//! What one connection has under way, in bytes: the base of its limits.

mod noted;
mod watchdog;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use bytes::{Buf, Bytes};
use tokio::sync::{Notify, futures::OwnedNotified};
use tokio_util::sync::CancellationToken;

pub(super) use noted::Noted;
pub(super) use watchdog::Watchdog;

/// Bytes of answers that the peer has not taken; beyond it further calls of the connection wait.
const UNSENT: usize = 512 * 1024;
/// Bytes of requests that have not ended.
pub(super) const UNFINISHED: usize = 2 << 20;

/// The bytes and calls of one connection.
#[derive(Debug)]
pub(super) struct Traffic {
    calls: AtomicUsize,
    unsent: AtomicUsize,
    unfinished: AtomicUsize,
    /// Grows whenever an answer is taken from us.
    taken: AtomicU64,
    /// Grows whenever the socket takes bytes.
    written: AtomicU64,
    /// The socket took no more at the last try.
    blocked: AtomicBool,
    room: Arc<Notify>,
    stalled: AtomicBool,
    /// Ends the connection: the broker drains, or the peer takes nothing.
    end: CancellationToken,
}

impl Traffic {
    pub(super) fn new(end: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            calls: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            room: Arc::new(Notify::new()),
            stalled: AtomicBool::new(false),
            end,
        })
    }

    /// Whether a call is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// Whether the peer took nothing for so long that the connection was ended.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Whether the peer took enough of its answers for one more.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) < UNSENT
    }

    /// Resolves when there may be room; to be made before [`has_room`](Self::has_room) is asked. One that waits is woken
    /// at a time: where there is room, it must [pass that on](Self::pass_on).
    pub(super) fn room(&self) -> OwnedNotified {
        Arc::clone(&self.room).notified_owned()
    }

    /// Wakes the next that waits for room.
    pub(super) fn pass_on(&self) {
        self.room.notify_one();
    }

    fn take(&self, bytes: usize) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let before = self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        if before >= UNSENT && before - bytes < UNSENT {
            self.pass_on();
        }
    }
}

/// A call, from its headers to the end of its answer.
#[derive(Debug)]
pub(super) struct Call(Arc<Traffic>);

impl Call {
    pub(super) fn of(traffic: &Arc<Traffic>) -> Self {
        traffic.calls.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(traffic))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of an answer that the peer has not taken.
#[derive(Debug)]
pub(super) struct Unsent {
    bytes: Bytes,
    traffic: Arc<Traffic>,
}

impl Unsent {
    pub(super) fn new(bytes: Bytes, traffic: &Arc<Traffic>) -> Self {
        traffic.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        Self { bytes, traffic: Arc::clone(traffic) }
    }
}

impl Buf for Unsent {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.traffic.take(count);
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.traffic.take(self.bytes.len());
        }
    }
}

/// Bytes of a request that has not ended.
#[derive(Debug)]
pub(super) struct Unfinished {
    bytes: usize,
    traffic: Arc<Traffic>,
}

impl Unfinished {
    pub(super) fn new(traffic: &Arc<Traffic>) -> Self {
        Self { bytes: 0, traffic: Arc::clone(traffic) }
    }

    /// So many in all from now on; false if that is too much for the connection.
    #[must_use]
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        self.traffic.unfinished.fetch_add(more, Ordering::Relaxed) + more <= UNFINISHED
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.traffic.unfinished.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_made_by_the_peer_and_passed_on() {
        let traffic = Traffic::new(CancellationToken::new());
        let mut answer = Unsent::new(Bytes::from(vec![0; UNSENT]), &traffic);
        let rooms = [traffic.room(), traffic.room()];
        assert!(!traffic.has_room());
        let [mut first, mut second] = rooms.map(Box::pin);
        assert!(
            futures_util::poll!(&mut first).is_pending() && futures_util::poll!(&mut second).is_pending()
        );
        answer.advance(1);
        assert!(traffic.has_room() && futures_util::poll!(&mut first).is_ready());
        assert!(futures_util::poll!(&mut second).is_pending(), "one at a time");
        traffic.pass_on();
        assert!(futures_util::poll!(&mut second).is_ready());
    }

    #[test]
    fn unfinished_requests_share_one_limit() {
        let traffic = Traffic::new(CancellationToken::new());
        let mut requests: Vec<_> = (0..8).map(|_| Unfinished::new(&traffic)).collect();
        assert!(requests.iter_mut().all(|request| request.grow_to(UNFINISHED / 8)));
        let mut more = Unfinished::new(&traffic);
        assert!(!more.grow_to(1));
        drop((requests.pop(), more));
        assert!(Unfinished::new(&traffic).grow_to(UNFINISHED / 8));
    }
}
