//! A run in flight: all callers that wait for it share its outcome, also a failure.

mod waiter;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::waiter::Waiter;
use super::{Pending, state::Failure};
use crate::{
    clock::Now,
    credential::Issued,
    exec::{Attendance, TicketHandle, Urgency},
    metrics::{RunOutcome, RunReason},
    trace::RunSpan,
};

/// The outcome of a run; `None`: it was abandoned, and callers that started to wait meanwhile decide again.
pub(crate) type RunResult = Option<Result<Arc<Issued>, Failure>>;

/// A run that is queued or in progress. The entry keeps the outcome, unless it was evicted meanwhile: then only the
/// callers that wait get it.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Why the run was started.
    pub(crate) reason: RunReason,
    outcome: watch::Sender<Option<RunResult>>,
    progress: Mutex<FlightProgress>,
    trace: OnceLock<RunSpan>,
    /// What it shares with those who attend it.
    pub(crate) attendance: Arc<Attendance>,
    /// Cancelled when the outcome is not needed.
    pub(crate) abandoned: CancellationToken,
}

#[derive(Debug)]
struct FlightProgress {
    /// The processes of the callers that wait now. The run is queued for the last of them: a caller that joins a run
    /// does not wait behind the other requests of the caller that started it.
    peers: Vec<u64>,
    /// The urgency while no caller waits.
    floor: Urgency,
    /// `None` before it is queued.
    ticket: Option<TicketHandle>,
    /// Time since boot; `None`: it is queued.
    started: Option<Duration>,
    /// The entry no longer refers to it.
    is_detached: bool,
}

impl FlightProgress {
    fn urgency(&self) -> Urgency {
        match (self.floor, self.peers.last()) {
            (Urgency::Forced, _) => Urgency::Forced,
            (_, Some(peer)) => Urgency::Waited { peer: *peer },
            (floor, None) => floor,
        }
    }

    fn update_scheduler(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.set_urgency(self.urgency());
        }
    }
}

impl Flight {
    /// A run that is not queued yet. `floor` is its urgency while no caller waits.
    pub(crate) fn new(floor: Urgency, reason: RunReason, attendance: Attendance) -> Self {
        let progress =
            FlightProgress { peers: Vec::new(), floor, ticket: None, started: None, is_detached: false };
        Self {
            reason,
            outcome: watch::Sender::new(None),
            progress: Mutex::new(progress),
            trace: OnceLock::new(),
            attendance: Arc::new(attendance),
            abandoned: CancellationToken::new(),
        }
    }

    /// Sets the span of the run.
    pub(crate) fn trace(&self, span: RunSpan) {
        let _first = self.trace.set(span);
    }

    /// Ends the span of the run.
    pub(crate) fn end_trace(&self, outcome: RunOutcome, queued: Option<Duration>) {
        self.trace.get().inspect(|span| span.end(outcome, queued));
    }

    /// The urgency now.
    pub(crate) fn urgency(&self) -> Urgency {
        self.lock().urgency()
    }

    /// Notes that the run is queued: from now on its urgency in the queue follows the callers that wait.
    pub(crate) fn queued(&self, ticket: TicketHandle) {
        let mut progress = self.lock();
        progress.ticket = Some(ticket);
        progress.update_scheduler();
    }

    /// Notes that the plugin starts at `now`.
    pub(crate) fn started(&self, now: Now) {
        self.lock().started = Some(now.boot);
    }

    /// Time since boot at which the plugin started; `None`: it is queued.
    pub(crate) fn started_at(&self) -> Option<Duration> {
        self.lock().started
    }

    /// Whether it is queued and no caller waits for it.
    pub(crate) fn is_background(&self) -> bool {
        let progress = self.lock();
        progress.started.is_none() && progress.peers.is_empty()
    }

    /// Changes the urgency while no caller waits. A forced run stays forced.
    pub(crate) fn set_floor(&self, floor: Urgency) {
        let mut progress = self.lock();
        if progress.floor == floor || progress.floor == Urgency::Forced {
            return;
        }
        progress.floor = floor;
        progress.update_scheduler();
    }

    /// Notes that the entry no longer refers to it. If no caller waits, the run is ended.
    pub(crate) fn detach(&self) {
        let mut progress = self.lock();
        progress.is_detached = true;
        if progress.peers.is_empty() {
            self.abandoned.cancel();
        }
    }

    /// Publishes the outcome.
    pub(crate) fn publish(&self, outcome: RunResult) {
        self.outcome.send_replace(Some(outcome));
    }

    /// Waits for the outcome without being a caller: the run stays background work.
    pub(crate) async fn outcome(&self) -> RunResult {
        let outcome = self.outcome.subscribe().wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        outcome.ok().flatten().flatten()
    }

    /// What a caller whose deadline passed at `now` waited for.
    pub(crate) fn pending(&self, now: Now) -> Pending {
        let progress = self.lock();
        match progress.started {
            Some(started) => Pending::Running(now.boot.saturating_sub(started)),
            None => Pending::Queued(progress.ticket.as_ref().and_then(TicketHandle::waits_for)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlightProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
