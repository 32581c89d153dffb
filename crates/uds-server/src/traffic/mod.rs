//! Counts the calls and bytes in progress on one connection. Its limits use these counts.

mod counted;
mod noted;
mod watchdog;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, futures::OwnedNotified};
use tokio_util::sync::CancellationToken;

pub(super) use counted::{Call, Unfinished, Unsent};
pub(super) use noted::Noted;
pub(super) use watchdog::Watchdog;

use tonic::Status;

use crate::{
    Refusal,
    places::{HeldCounts, TooManyBytes},
};

/// Limit of response bytes that the peer has not read. Above it, further calls of the connection wait.
const UNSENT: usize = 512 * 1024;

/// The statuses of a program.
pub(super) type Statuses = fn(Refusal) -> Status;

/// The bytes and calls of one connection.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Calls that have begun and calls that have ended, since the connection began.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// When the last call ended, or the connection began, in milliseconds of [`clock::coarse`].
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
    /// The bytes that count against the limits of the peer's uid and process.
    holding: HeldCounts,
    /// What the program answers when the server refuses a call.
    statuses: Statuses,
}

impl Traffic {
    /// The counts of a connection that begins at `now`.
    pub(super) fn new(
        end: CancellationToken,
        holding: HeldCounts,
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
            holding,
            statuses,
        })
    }

    /// The answer to a call that the server refuses or ends.
    pub(super) fn status(&self, why: Refusal) -> Status {
        (self.statuses)(why)
    }

    /// Cancelled when the connection has to end.
    pub(super) fn end(&self) -> &CancellationToken {
        &self.end
    }

    /// Whether there was no call yet.
    pub(super) fn is_silent(&self) -> bool {
        self.begun() == 0
    }

    /// Whether the first answer, or its first message, was given to HTTP/2.
    pub(super) fn has_answered(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0 || self.ended.load(Ordering::Relaxed) > 0
    }

    /// Whether what the server writes first waits for the first answer: a peer that has made its call already, as a shim
    /// does, then wakes once and reads once.
    pub(super) fn is_corked(&self) -> bool {
        self.corked.load(Ordering::Acquire)
    }

    /// What was written so far goes out: there is an answer, or none comes soon.
    pub(super) fn uncork(&self) {
        if self.is_corked() {
            self.writes_on();
            self.uncorked.wake();
        }
    }

    /// As [`uncork`](Self::uncork), by the connection itself.
    pub(super) fn writes_on(&self) {
        self.corked.store(false, Ordering::Release);
    }

    /// Ready when nothing waits for the first answer any longer.
    pub(super) fn poll_uncorked(&self, cx: &Context<'_>) -> Poll<()> {
        self.uncorked.register(cx.waker());
        if self.is_corked() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// The time without a call until `now`; `None`: a call is under way.
    pub(super) fn idle(&self, now: Duration) -> Option<Duration> {
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        (!self.is_busy()).then(|| now.saturating_sub(since))
    }

    /// Ends the connection, because another one needs its place.
    pub(super) fn give_way(&self) {
        self.end.cancel();
    }

    /// Whether the peer's uid and process may have more bytes.
    ///
    /// # Errors
    ///
    /// The limit that is exceeded.
    pub(super) fn check_bytes(&self) -> Result<(), TooManyBytes> {
        self.holding.check()
    }

    /// Whether a call is under way.
    pub(super) fn is_busy(&self) -> bool {
        // In this order: a call that begins and ends in between makes no difference.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun() != ended
    }

    /// The number of calls that have begun.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Traffic {
    /// The counts of a connection without a peer.
    pub(super) fn for_tests() -> Arc<Self> {
        Self::for_tests_until(CancellationToken::new())
    }

    pub(super) fn for_tests_until(end: CancellationToken) -> Arc<Self> {
        Self::new(end, HeldCounts::default(), Duration::ZERO, |why| Status::unavailable(format!("{why:?}")))
    }
}

#[cfg(test)]
mod tests;
