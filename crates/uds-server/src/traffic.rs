//! One connection: its calls and bytes in progress, and what they take from its peer's account.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    account::{Account, Full, Limit, Refusal, Reserve, STEP, Who},
    linux::coarse,
};

/// Bytes of a connection without a call: the state of HTTP/2 and its task.
const HTTP2: usize = 40 * 1024;
/// Bytes of a call in progress: its stream, task, head and small messages. A thousand take 2.0 to 2.3 MiB.
const CALL: usize = 2048;
/// What a connection takes from its account when it begins.
pub(crate) const CONNECTION: usize = HTTP2 + STEP;
/// Bytes that the peer may send ahead, on one stream or on all: at least one request.
pub(crate) const WINDOW: u32 = 256 * 1024;
/// Limit of response bytes that the peer has not read. Above it, further calls of the connection wait.
const UNSENT: usize = 512 * 1024;
const UNFINISHED: usize = 2 << 20;
/// Watches of a connection at the same time: fewer than its streams, so that another call always passes.
const WATCHES: usize = 1000;
const FIRST_CALL: Duration = Duration::from_secs(5);
/// Interval between looks at a connection, and the number of those without progress after which it ends.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOKS: u32 = 6;

/// The bytes and calls of one connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) reserve: Reserve,
    /// Bytes that are charged besides the calls themselves, and those of unfinished requests.
    charged: AtomicUsize,
    unfinished: AtomicUsize,
    /// Calls that have begun and calls that have ended, since the connection began.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// When the last call ended, or the connection began, in milliseconds of [`coarse`].
    idle_since: AtomicU64,
    unsent: AtomicUsize,
    room: Notify,
    /// Increases whenever HTTP/2 takes response bytes.
    taken: AtomicU64,
    /// Increases whenever the socket takes bytes.
    pub(crate) written: AtomicU64,
    /// Whether the socket took no bytes at the last write.
    pub(crate) blocked: AtomicBool,
    /// Whether the connection ends because the peer reads nothing.
    pub(crate) stalled: AtomicBool,
    /// Whether the connection has read all that it may in one poll.
    pub(crate) has_read: AtomicBool,
    /// Whether a limit refused a call, and the connection has not paused for it.
    pub(crate) refused: AtomicBool,
    /// Whether what the server writes no longer waits for the answer to the first call.
    uncorked: AtomicBool,
    pub(crate) on_uncork: AtomicWaker,
    /// Cancelled to end the connection: the server drains, the peer makes no call or reads nothing, or another connection
    /// needs the place.
    pub(crate) end: CancellationToken,
}

impl Traffic {
    /// A connection that begins at `now`, and takes [`CONNECTION`] bytes from `account`.
    pub(crate) fn new(end: CancellationToken, account: Arc<Account>, now: Duration) -> Arc<Self> {
        let (reserve, idle_since) = (Reserve { account, bytes: 0.into() }, millis(now).into());
        reserve.must_grow_to(CONNECTION);
        Arc::new(Self { reserve, idle_since, end, ..Self::default() })
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn calls(&self) -> usize {
        // In this order: a call that begins and ends in between makes no difference.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun().saturating_sub(ended)
    }

    /// The time without a call until `now`; `None`: a call is under way.
    pub(crate) fn idle(&self, now: Duration) -> Option<Duration> {
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        (self.calls() == 0).then(|| now.saturating_sub(since))
    }

    /// Whether the first answer, or its first message, was given to HTTP/2.
    pub(crate) fn has_answered(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0 || self.ended.load(Ordering::Relaxed) > 0
    }

    /// Whether what the server writes first waits for the first answer: a peer that has made its call already, as a shim
    /// does, then wakes once and reads once.
    pub(crate) fn is_corked(&self) -> bool {
        !self.uncorked.load(Ordering::Acquire)
    }

    /// What was written so far goes out: there is an answer, or none comes soon.
    pub(crate) fn uncork(&self) {
        if self.is_corked() {
            self.uncorked.store(true, Ordering::Release);
            self.on_uncork.wake();
        }
    }

    /// Whether the unread answers are below the limit, so that another one may be made.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) < UNSENT
    }

    /// Waits until there is room. One waiter at a time is woken, and wakes the next one.
    pub(crate) async fn room(self: Arc<Self>) {
        loop {
            // Before the check, so that no news is missed.
            let news = self.room.notified();
            if self.has_room() {
                return self.room.notify_one();
            }
            news.await;
        }
    }

    fn take(&self, bytes: usize) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let before = self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        if before >= UNSENT && before - bytes < UNSENT {
            self.room.notify_one();
        }
    }

    /// Takes what the connection holds from its account, if the peer may have more.
    pub(crate) fn grow(&self) -> Result<(), Refusal> {
        self.reserve.grow_to(self.used()).map_err(|full| self.refuse(full))
    }

    /// The refusal of a call. What the peer sent after it waits for a while.
    pub(crate) fn refuse(&self, full: Full) -> Refusal {
        self.refused.store(true, Ordering::Relaxed);
        Refusal::Full(full)
    }

    /// Bytes that the connection holds.
    pub(crate) fn used(&self) -> usize {
        let charged = [&self.charged, &self.unfinished].map(|charged| charged.load(Ordering::Relaxed));
        // While calls wait for room, what the peer sends ahead is not read.
        let ahead = if self.has_room() { 0 } else { WINDOW as usize };
        HTTP2 + ahead + self.calls() * CALL + charged.iter().sum::<usize>()
    }
}

/// A connection that is served, and what was seen of it. One timer looks at all connections, so a request sets none.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) traffic: Arc<Traffic>,
    /// How far HTTP/2 and the socket had come, in counters of what they take. `None`: nothing waited for the peer there.
    progress: [Option<u64>; 2],
    looks: u32,
}

impl Served {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        Self { traffic: Arc::clone(traffic), progress: [None; 2], looks: 0 }
    }

    /// Ends the connection of a peer that makes no call, or does not read its answers.
    pub(crate) fn look(&mut self, now: Duration) {
        let traffic = &self.traffic;
        if traffic.begun() == 0 && traffic.idle(now) >= Some(FIRST_CALL) {
            debug!("a peer made no call: its connection is closed");
            return traffic.end.cancel();
        }
        let (waits, is_blocked) =
            (traffic.unsent.load(Ordering::Relaxed) > 0, traffic.blocked.load(Ordering::Relaxed));
        let [taken, written] = [&traffic.taken, &traffic.written].map(|taken| taken.load(Ordering::Relaxed));
        let progress = [waits.then_some(taken), is_blocked.then_some(written)];
        let earlier = mem::replace(&mut self.progress, progress);
        let is_stuck = progress.iter().zip(earlier).any(|(now, earlier)| now.is_some() && *now == earlier);
        self.looks = if is_stuck { self.looks + 1 } else { 0 };
        if self.looks == LOOKS {
            debug!("a peer read nothing for half a minute: its connection is closed");
            traffic.stalled.store(true, Ordering::Relaxed);
            traffic.end.cancel();
        }
    }
}

/// A call in progress, from its headers to the end of its response.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) traffic: Arc<Traffic>,
    charge: Option<Arc<Charge>>,
}

impl Call {
    pub(crate) fn of(traffic: &Arc<Traffic>) -> Self {
        traffic.begun.fetch_add(1, Ordering::Relaxed);
        Self { traffic: Arc::clone(traffic), charge: None }
    }

    /// What the call has charged besides itself. It ends with the call, or later with its last reference.
    pub(crate) fn charge(&mut self) -> &Arc<Charge> {
        self.charge.get_or_insert_with(|| Arc::new(Charge::new(&self.traffic)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.traffic.idle_since.store(millis(coarse()), Ordering::Relaxed);
        self.traffic.ended.fetch_add(1, Ordering::Release);
        self.traffic.reserve.shrink_to(self.traffic.used());
        // Its answer may have been written before it counted as one.
        self.traffic.uncork();
    }
}

/// What a call holds besides itself, in the account of its peer. It is in the extensions of each request.
#[derive(Debug)]
pub struct Charge {
    bytes: AtomicUsize,
    traffic: Arc<Traffic>,
    counter: fn(&Traffic) -> &AtomicUsize,
}

/// One in an account without a limit.
impl Default for Charge {
    fn default() -> Self {
        Self::new(&Arc::default())
    }
}

impl Charge {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        Self { bytes: 0.into(), traffic: Arc::clone(traffic), counter: |traffic| &traffic.charged }
    }

    /// That of a request until it is received.
    pub(crate) fn unfinished(traffic: &Arc<Traffic>) -> Self {
        Self { bytes: 0.into(), traffic: Arc::clone(traffic), counter: |traffic| &traffic.unfinished }
    }

    /// Another charge to the same account, for a part of the call that may end before the call.
    #[must_use]
    pub fn part(&self) -> Self {
        Self::new(&self.traffic)
    }

    /// Charges `bytes` until the call has ended.
    ///
    /// # Errors
    ///
    /// The peer may not have more.
    pub fn charge(&self, bytes: usize) -> Result<(), Refusal> {
        self.add(bytes);
        self.traffic.grow()
    }

    /// The same of bytes of an unfinished request, of which a connection may have few.
    pub(crate) fn receive(&self, bytes: usize) -> Result<(), Refusal> {
        self.charge(bytes)?;
        let full = Full { limit: Limit::Unfinished, who: Who::Connection, most: UNFINISHED };
        let are_many = self.traffic.unfinished.load(Ordering::Relaxed) > UNFINISHED;
        if are_many { Err(self.traffic.refuse(full)) } else { Ok(()) }
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        (self.counter)(&self.traffic).fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        (self.counter)(&self.traffic).fetch_sub(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.traffic.reserve.shrink_to(self.traffic.used());
    }
}

/// Response bytes that the peer has not read.
#[derive(Debug)]
pub(crate) struct Unsent {
    bytes: Bytes,
    /// For bytes that only this answer holds. Answers from memory share theirs with the cache.
    _own: Option<Charge>,
    traffic: Arc<Traffic>,
}

impl Unsent {
    pub(crate) fn new(bytes: Bytes, traffic: &Arc<Traffic>) -> Self {
        traffic.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        let own = bytes.is_unique().then(|| Charge::new(traffic));
        if let Some(own) = &own {
            own.add(bytes.len());
            traffic.reserve.must_grow_to(traffic.used());
        }
        Self { bytes, _own: own, traffic: Arc::clone(traffic) }
    }

    pub(crate) fn split_to(&mut self, count: usize) -> Self {
        // The rest keeps the whole block in memory, so it keeps the count.
        let bytes = self.bytes.split_to(count.min(self.bytes.len()));
        Self { bytes, _own: None, traffic: Arc::clone(&self.traffic) }
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

/// The watches of one connection. They are in the extensions of each request.
#[derive(Clone, Debug)]
pub struct WatchSlots {
    slots: Arc<Semaphore>,
    pub(crate) draining: CancellationToken,
}

/// The place of one watch. Dropping it frees the place.
#[derive(Debug)]
pub struct WatchSlot(#[expect(dead_code, reason = "dropping it frees the place")] OwnedSemaphorePermit);

impl WatchSlots {
    /// Those of a connection.
    pub fn new(draining: CancellationToken) -> Self {
        Self { slots: Arc::new(Semaphore::new(WATCHES)), draining }
    }

    /// How many watches are open.
    pub fn open(&self) -> usize {
        WATCHES - self.slots.available_permits()
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
        let full = Full { limit: Limit::Watches, who: Who::Connection, most: WATCHES };
        slot.map(WatchSlot).map_err(|_full| Refusal::Full(full))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
