//! Counts the calls and bytes in progress on one connection. Its limits use these counts.

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

/// Limit of response bytes that the peer has not read. Above it, further calls of the connection wait.
const UNSENT: usize = 512 * 1024;
/// Limit of bytes of unfinished requests.
pub(super) const UNFINISHED: usize = 2 << 20;

/// The bytes and calls of one connection.
#[derive(Debug)]
pub(super) struct Traffic {
    calls: AtomicUsize,
    unsent: AtomicUsize,
    unfinished: AtomicUsize,
    /// Increases whenever HTTP/2 takes response bytes.
    taken: AtomicU64,
    /// Increases whenever the socket takes bytes.
    written: AtomicU64,
    /// Whether the socket took no bytes at the last write.
    blocked: AtomicBool,
    room: Arc<Notify>,
    stalled: AtomicBool,
    /// Cancelled to end the connection: the broker drains, or the peer reads nothing.
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

    /// Whether the connection was ended because the peer read nothing.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Whether the unread responses are below the limit, so that another call may start.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) < UNSENT
    }

    /// Resolves when there may be room. Create it before checking [`has_room`](Self::has_room). It wakes one waiter
    /// at a time, which must [wake the next](Self::pass_on) if there is still room.
    pub(super) fn room(&self) -> OwnedNotified {
        Arc::clone(&self.room).notified_owned()
    }

    /// Wakes the next waiter for room.
    pub(super) fn pass_on(&self) {
        self.room.notify_one();
    }

    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let before = self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        if before >= UNSENT && before - bytes < UNSENT {
            self.pass_on();
        }
    }
}

/// A call in progress, from its headers to the end of its response.
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

/// Response bytes that the peer has not read.
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

impl Unsent {
    /// Splits off the first `count` bytes. The total does not change.
    pub(super) fn split_to(&mut self, count: usize) -> Self {
        Self { bytes: self.bytes.split_to(count.min(self.bytes.len())), traffic: Arc::clone(&self.traffic) }
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

/// Bytes of an unfinished request.
#[derive(Debug)]
pub(super) struct Unfinished {
    bytes: usize,
    traffic: Arc<Traffic>,
}

impl Unfinished {
    pub(super) fn new(traffic: &Arc<Traffic>) -> Self {
        Self { bytes: 0, traffic: Arc::clone(traffic) }
    }

    /// Increases the size to `bytes`. Returns false if the connection exceeds its limit.
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
