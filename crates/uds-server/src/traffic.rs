//! One connection: its calls and bytes in progress, and what they take from its peer's account.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::OwnedNotified};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    account::{Account, Full, Limit, Refusal, Who},
    linux::coarse,
};

/// Bytes of a connection without a call: the state of HTTP/2 and its task.
const HTTP2: usize = 40 * 1024;
/// Bytes of a call in progress: its stream, task, head and small messages. A thousand take 2.0 to 2.3 MiB.
const CALL: usize = 2048;
/// A connection takes from its account in such steps, so that few calls at a time take nothing.
const STEP: usize = 8 * 1024;
/// What a connection takes from its account when it begins.
pub(crate) const CONNECTION: usize = HTTP2 + STEP;
/// Limit of response bytes that the peer has not read. Above it, further calls of the connection wait.
const UNSENT: usize = 512 * 1024;
/// Limit of bytes of unfinished requests.
const UNFINISHED: usize = 2 << 20;
/// Streams of a connection at the same time that watch something. It is below the number of all, so that another call on
/// the same connection always passes.
const WATCHES: usize = 1000;
/// Number of open watches from which on a connection collects messages before it writes.
const MANY: usize = 8;

/// The statuses of a program.
pub(crate) type Statuses = fn(Refusal) -> Status;

/// The bytes and calls of one connection.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// Calls that have begun and calls that have ended, since the connection began.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// When the last call ended, or the connection began, in milliseconds of [`coarse`].
    idle_since: AtomicU64,
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
    /// Whether what the server writes waits for the answer to the first call.
    corked: AtomicBool,
    /// Wakes the connection when it no longer does.
    uncorked: AtomicWaker,
    /// Cancelled to end the connection: the server drains, the peer makes no call or reads nothing, or another connection
    /// needs the place.
    end: CancellationToken,
    /// Bytes that are charged besides the calls themselves.
    charged: AtomicUsize,
    /// Bytes that were taken from the account.
    reserved: AtomicUsize,
    /// `None`: for a connection that is refused.
    account: Option<Arc<Account>>,
    /// What the program answers when the server refuses a call.
    statuses: Statuses,
}

/// Whether a connection makes progress: counters of what HTTP/2 and the socket take. `None`: nothing waits for the peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    taken: Option<u64>,
    written: Option<u64>,
}

impl Progress {
    pub(crate) fn is_stuck_since(self, earlier: Self) -> bool {
        let is_stuck = |now: Option<u64>, earlier: Option<u64>| now.is_some() && now == earlier;
        is_stuck(self.taken, earlier.taken) || is_stuck(self.written, earlier.written)
    }
}

impl Traffic {
    /// A connection that begins at `now`, for which [`CONNECTION`] bytes were taken from `account`.
    pub(crate) fn new(
        end: CancellationToken,
        account: Option<Arc<Account>>,
        now: Duration,
        statuses: Statuses,
    ) -> Arc<Self> {
        Arc::new(Self {
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            idle_since: AtomicU64::new(millis(now)),
            unsent: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            room: Arc::new(Notify::new()),
            stalled: AtomicBool::new(false),
            corked: AtomicBool::new(true),
            uncorked: AtomicWaker::new(),
            end,
            charged: AtomicUsize::new(0),
            reserved: AtomicUsize::new(CONNECTION),
            account,
            statuses,
        })
    }

    /// The answer to a call that the server refuses or ends.
    pub(crate) fn status(&self, why: Refusal) -> Status {
        (self.statuses)(why)
    }

    /// Cancelled when the connection has to end.
    pub(crate) fn end(&self) -> &CancellationToken {
        &self.end
    }

    /// Ends the connection, because another one needs its place.
    pub(crate) fn give_way(&self) {
        self.end.cancel();
    }

    /// Ends the connection, because the peer reads nothing.
    pub(crate) fn stall(&self) {
        self.stalled.store(true, Ordering::Relaxed);
        self.end.cancel();
    }

    /// Whether the connection was ended because the peer read nothing.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Whether there was no call yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.begun() == 0
    }

    /// Whether a call is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.calls() > 0
    }

    /// The number of calls that have begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    /// The number of calls in progress.
    fn calls(&self) -> usize {
        // In this order: a call that begins and ends in between makes no difference.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun().saturating_sub(ended)
    }

    /// The time without a call until `now`; `None`: a call is under way.
    pub(crate) fn idle(&self, now: Duration) -> Option<Duration> {
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        (!self.is_busy()).then(|| now.saturating_sub(since))
    }

    /// How far HTTP/2 and the socket have come.
    pub(crate) fn progress(&self) -> Progress {
        let waits = self.unsent.load(Ordering::Relaxed) > 0;
        let is_blocked = self.blocked.load(Ordering::Relaxed);
        Progress {
            taken: waits.then(|| self.taken.load(Ordering::Relaxed)),
            written: is_blocked.then(|| self.written.load(Ordering::Relaxed)),
        }
    }

    /// Whether the socket has taken bytes.
    pub(crate) fn has_written(&self) -> bool {
        self.written.load(Ordering::Relaxed) > 0
    }

    /// Records whether the socket took bytes.
    pub(crate) fn wrote(&self, has_taken: bool) {
        self.blocked.store(!has_taken, Ordering::Relaxed);
        if has_taken {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the first answer, or its first message, was given to HTTP/2.
    pub(crate) fn has_answered(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0 || self.ended.load(Ordering::Relaxed) > 0
    }

    /// Whether what the server writes first waits for the first answer: a peer that has made its call already, as a shim
    /// does, then wakes once and reads once.
    pub(crate) fn is_corked(&self) -> bool {
        self.corked.load(Ordering::Acquire)
    }

    /// What was written so far goes out: there is an answer, or none comes soon.
    pub(crate) fn uncork(&self) {
        if self.is_corked() {
            self.writes_on();
            self.uncorked.wake();
        }
    }

    /// As [`uncork`](Self::uncork), by the connection itself.
    pub(crate) fn writes_on(&self) {
        self.corked.store(false, Ordering::Release);
    }

    /// Ready when nothing waits for the first answer any longer.
    pub(crate) fn poll_uncorked(&self, cx: &Context<'_>) -> Poll<()> {
        self.uncorked.register(cx.waker());
        if self.is_corked() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Whether the unread responses are below the limit, so that another call may start.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) < UNSENT
    }

    /// Resolves when there may be room. Create it before checking [`has_room`](Self::has_room). It wakes one waiter
    /// at a time, which must [wake the next](Self::pass_on) if there is still room.
    pub(crate) fn room(&self) -> OwnedNotified {
        Arc::clone(&self.room).notified_owned()
    }

    /// Wakes the next waiter for room.
    pub(crate) fn pass_on(&self) {
        self.room.notify_one();
    }

    fn take(&self, bytes: usize) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let before = self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        if before >= UNSENT && before - bytes < UNSENT {
            self.pass_on();
        }
    }

    /// What the connection has not reserved of what it uses.
    fn missing(&self) -> usize {
        let used = HTTP2 + self.calls() * CALL + self.charged.load(Ordering::Relaxed);
        used.saturating_sub(self.reserved.load(Ordering::Relaxed))
    }

    /// Takes what the calls in progress need from the account of the peer.
    ///
    /// # Errors
    ///
    /// The peer may not have more.
    pub(crate) fn reserve(&self) -> Result<(), Full> {
        let (missing, Some(account)) = (self.missing(), &self.account) else { return Ok(()) };
        if missing > 0 {
            let more = missing.next_multiple_of(STEP);
            account.take(more)?;
            self.reserved.fetch_add(more, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Charges what is there already, whether or not the peer may have more.
    fn add(&self, bytes: usize) {
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        if let (missing @ 1.., Some(account)) = (self.missing(), &self.account) {
            let more = missing.next_multiple_of(STEP);
            account.add(more);
            self.reserved.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn uncharge(&self, bytes: usize) {
        self.charged.fetch_sub(bytes, Ordering::Relaxed);
        self.give_back();
    }

    /// Gives back what is not needed, except for the next calls.
    fn give_back(&self) {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let used = HTTP2 + self.calls() * CALL + self.charged.load(Ordering::Relaxed);
        let needed = used.next_multiple_of(STEP) + STEP;
        if needed < reserved
            && let Some(account) = &self.account
            && self.reserved.compare_exchange(reserved, needed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            account.give_back(reserved - needed);
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give_back(*self.reserved.get_mut());
        }
    }
}

/// A call in progress, from its headers to the end of its response.
#[derive(Debug)]
pub(crate) struct Call {
    traffic: Arc<Traffic>,
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
        self.traffic.give_back();
    }
}

/// What a call holds besides itself, in the account of its peer. It is in the extensions of each request.
#[derive(Debug)]
pub struct Charge {
    bytes: AtomicUsize,
    traffic: Arc<Traffic>,
}

impl Charge {
    fn new(traffic: &Arc<Traffic>) -> Self {
        Self { bytes: AtomicUsize::new(0), traffic: Arc::clone(traffic) }
    }

    /// Charges `bytes` until the call has ended.
    ///
    /// # Errors
    ///
    /// The peer may not have more.
    pub fn charge(&self, bytes: usize) -> Result<(), Refusal> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.traffic.charged.fetch_add(bytes, Ordering::Relaxed);
        self.traffic.reserve().map_err(Refusal::Full)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.traffic.uncharge(*self.bytes.get_mut());
    }
}

/// Bytes of an unfinished request.
#[derive(Debug)]
pub(crate) struct Unfinished(Charge);

impl Unfinished {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        Self(Charge::new(traffic))
    }

    /// Increases the size to `bytes`.
    ///
    /// # Errors
    ///
    /// The peer or the connection may not have more.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Status> {
        let (charge, traffic) = (&self.0, &self.0.traffic);
        let more = bytes.saturating_sub(charge.bytes.load(Ordering::Relaxed));
        let charged = charge.charge(more);
        let all = traffic.unfinished.fetch_add(more, Ordering::Relaxed) + more;
        charged.map_err(|why| traffic.status(why))?;
        if all > UNFINISHED {
            let full = Full { limit: Limit::Unfinished, who: Who::Connection, most: UNFINISHED };
            return Err(traffic.status(Refusal::Full(full)));
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.traffic.unfinished.fetch_sub(*self.0.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// Response bytes that the peer has not read.
#[derive(Debug)]
pub(crate) struct Unsent {
    bytes: Bytes,
    /// The bytes that only this answer holds. Answers from memory share theirs with the cache.
    own: usize,
    traffic: Arc<Traffic>,
}

impl Unsent {
    pub(crate) fn new(bytes: Bytes, traffic: &Arc<Traffic>) -> Self {
        traffic.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        let own = if bytes.is_unique() { bytes.len() } else { 0 };
        if own > 0 {
            traffic.add(own);
        }
        Self { bytes, own, traffic: Arc::clone(traffic) }
    }

    /// Splits off the first `count` bytes. The total does not change.
    pub(crate) fn split_to(&mut self, count: usize) -> Self {
        // The rest keeps the whole block in memory, so it keeps the count.
        let bytes = self.bytes.split_to(count.min(self.bytes.len()));
        Self { bytes, own: 0, traffic: Arc::clone(&self.traffic) }
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
        if self.own > 0 {
            self.traffic.uncharge(self.own);
        }
    }
}

/// The watches of one connection. They are in the extensions of each request.
#[derive(Clone, Debug)]
pub struct WatchSlots {
    slots: Arc<Semaphore>,
    draining: CancellationToken,
}

/// The place of one watch. Dropping it frees the place.
#[derive(Debug)]
pub struct WatchSlot(#[expect(dead_code, reason = "dropping it frees the place")] OwnedSemaphorePermit);

impl WatchSlots {
    /// Those of a connection.
    pub fn new(draining: CancellationToken) -> Self {
        Self { slots: Arc::new(Semaphore::new(WATCHES)), draining }
    }

    /// Whether enough watches are open that news wake them faster than the connection writes single messages.
    pub(crate) fn are_many(&self) -> bool {
        self.open() >= MANY
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
impl Traffic {
    /// A connection without a peer.
    pub(crate) fn for_tests() -> Arc<Self> {
        Self::for_tests_until(CancellationToken::new())
    }

    pub(crate) fn for_tests_until(end: CancellationToken) -> Arc<Self> {
        Self::new(end, None, Duration::ZERO, |why| Status::unavailable(format!("{why:?}")))
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
