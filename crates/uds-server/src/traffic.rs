//! One connection: its calls and bytes in progress, and what they take from its peer's account.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Context,
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
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
    account: Arc<Account>,
    /// Bytes that are charged besides the calls themselves.
    charged: AtomicUsize,
    /// Bytes that were taken from the account.
    reserved: AtomicUsize,
    /// Calls that have begun and calls that have ended, since the connection began.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// When the last call ended, or the connection began, in milliseconds of [`coarse`].
    idle_since: AtomicU64,
    unfinished: AtomicUsize,
    unsent: AtomicUsize,
    room: Notify,
    /// Increases whenever HTTP/2 takes response bytes.
    taken: AtomicU64,
    /// Increases whenever the socket takes bytes.
    written: AtomicU64,
    /// Whether the socket took no bytes at the last write.
    blocked: AtomicBool,
    stalled: AtomicBool,
    /// Whether what the server writes waits for the answer to the first call.
    corked: AtomicBool,
    /// Wakes the connection when it no longer does.
    uncorked: AtomicWaker,
    /// Cancelled to end the connection: the server drains, the peer makes no call or reads nothing, or another connection
    /// needs the place.
    end: CancellationToken,
    /// What the program answers when the server refuses a call.
    statuses: Statuses,
}

impl Traffic {
    /// A connection that begins at `now`, and takes [`CONNECTION`] bytes from `account`.
    pub(crate) fn new(
        end: CancellationToken,
        account: Arc<Account>,
        now: Duration,
        statuses: Statuses,
    ) -> Arc<Self> {
        account.take(CONNECTION);
        Arc::new(Self {
            account,
            charged: 0.into(),
            reserved: CONNECTION.into(),
            begun: 0.into(),
            ended: 0.into(),
            idle_since: millis(now).into(),
            unfinished: 0.into(),
            unsent: 0.into(),
            room: Notify::new(),
            taken: 0.into(),
            written: 0.into(),
            blocked: false.into(),
            stalled: false.into(),
            corked: true.into(),
            uncorked: AtomicWaker::new(),
            end,
            statuses,
        })
    }

    /// The account of the peer.
    pub(crate) fn account(&self) -> &Account {
        &self.account
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

    /// How far HTTP/2 and the socket have come, in counters of what they take. `None`: nothing waits for the peer there.
    pub(crate) fn progress(&self) -> [Option<u64>; 2] {
        let waits = self.unsent.load(Ordering::Relaxed) > 0;
        let is_blocked = self.blocked.load(Ordering::Relaxed);
        [
            waits.then(|| self.taken.load(Ordering::Relaxed)),
            is_blocked.then(|| self.written.load(Ordering::Relaxed)),
        ]
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

    /// The same. The connection is woken when nothing waits any longer.
    pub(crate) fn poll_corked(&self, cx: &Context<'_>) -> bool {
        // Again after the waker was registered, so that none is missed.
        self.is_corked() && {
            self.uncorked.register(cx.waker());
            self.is_corked()
        }
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

    /// Bytes that the connection holds.
    fn used(&self) -> usize {
        HTTP2 + self.calls() * CALL + self.charged.load(Ordering::Relaxed)
    }

    /// Takes what the connection holds from the account of the peer.
    ///
    /// # Errors
    ///
    /// The peer may not have more.
    pub(crate) fn reserve(&self) -> Result<(), Full> {
        if self.used() > self.reserved.load(Ordering::Relaxed) {
            self.account.check_bytes()?;
            self.reserve_what_is_there();
        }
        Ok(())
    }

    /// The same of what is there already, whether or not the peer may have more.
    fn reserve_what_is_there(&self) {
        let missing = self.used().saturating_sub(self.reserved.load(Ordering::Relaxed));
        if missing > 0 {
            let more = missing.next_multiple_of(STEP);
            self.account.take(more);
            self.reserved.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Gives back what is not needed, except for the next calls.
    fn give_back(&self) {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let needed = self.used().next_multiple_of(STEP) + STEP;
        if needed < reserved
            && self.reserved.compare_exchange(reserved, needed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.account.give_back(reserved - needed);
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.account.give_back(*self.reserved.get_mut());
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
        // Its answer may have been written before it counted as one.
        self.traffic.uncork();
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
        self.add(bytes);
        self.traffic.reserve().map_err(Refusal::Full)
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.traffic.charged.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.traffic.charged.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
        self.traffic.give_back();
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
        let Self(charge) = self;
        let more = bytes.saturating_sub(*charge.bytes.get_mut());
        let all = charge.traffic.unfinished.fetch_add(more, Ordering::Relaxed) + more;
        let full = Full { limit: Limit::Unfinished, who: Who::Connection, most: UNFINISHED };
        let charged = charge.charge(more);
        let grown = charged.and(if all > UNFINISHED { Err(Refusal::Full(full)) } else { Ok(()) });
        grown.map_err(|why| charge.traffic.status(why))
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
    /// For bytes that only this answer holds. Answers from memory share theirs with the cache.
    _own: Option<Charge>,
    traffic: Arc<Traffic>,
}

impl Unsent {
    pub(crate) fn new(bytes: Bytes, traffic: &Arc<Traffic>) -> Self {
        traffic.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        let own = bytes.is_unique().then(|| {
            let charge = Charge::new(traffic);
            charge.add(bytes.len());
            traffic.reserve_what_is_there();
            charge
        });
        Self { bytes, _own: own, traffic: Arc::clone(traffic) }
    }

    /// Splits off the first `count` bytes. The total does not change.
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
        Self::new(end, Account::unlimited(), Duration::ZERO, |why| Status::unavailable(format!("{why:?}")))
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
