//! A run in flight: all callers that wait for it share its outcome, also a failure.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    bounds::uid,
    error::{Failure, Pending},
    request::Request,
};
use credbroker_credential::Issued;
use credbroker_observe::{
    clock::Now,
    metrics::{RunOutcome, RunReason},
    trace::RunSpan,
};
use credbroker_runner::{Attendance, Attending, Throttled, Ticket, TicketHandle, Urgency};

/// The outcome of a run; `None`: it was abandoned, and callers that started to wait meanwhile decide again.
pub(crate) type RunResult = Option<Result<Arc<Issued>, Failure>>;

/// A run that is queued or in progress. The entry keeps the outcome, unless it was evicted meanwhile: then only the
/// callers that wait get it.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Why the run was started.
    pub reason: RunReason,
    outcome: watch::Sender<Option<RunResult>>,
    progress: Mutex<FlightProgress>,
    trace: OnceLock<RunSpan>,
    /// What it shares with those who attend it.
    pub attendance: Arc<Attendance>,
    /// Cancelled when the outcome is not needed.
    pub abandoned: CancellationToken,
}

#[derive(Debug)]
struct FlightProgress {
    /// The processes of the callers that wait now. The run is queued for all of them, and starts in the first turn of any:
    /// a caller that joins it delays no other.
    peers: Vec<u64>,
    /// The first of them is that of the caller for whom the run is started, who does not wait yet.
    is_starting: bool,
    /// The urgency while no caller waits; [`Urgency::Waited`]: only callers need it.
    floor: Urgency,
    /// `None` before it is queued.
    ticket: Option<TicketHandle>,
    /// Time since boot; `None`: it is queued.
    started: Option<Duration>,
    /// The entry no longer refers to it.
    is_detached: bool,
}

impl FlightProgress {
    /// Notes that a caller in `peer` waits.
    fn join(&mut self, peer: u64) -> Result<(), Throttled> {
        if let Some(ticket) = &self.ticket {
            ticket.join(peer)?;
        }
        self.peers.push(peer);
        Ok(())
    }

    /// Notes that a caller in `peer` no longer waits.
    fn part(&mut self, peer: u64) {
        if let Some(index) = self.peers.iter().position(|waiting| *waiting == peer) {
            self.peers.swap_remove(index);
            if let Some(ticket) = &self.ticket {
                ticket.part(peer);
            }
        }
    }
}

impl Flight {
    /// A run that is not queued yet. `floor` is its urgency while no caller waits. With [`Urgency::Waited`], that caller
    /// waits next.
    pub(crate) fn new(floor: Urgency, reason: RunReason, attendance: Attendance) -> Self {
        let starts = if let Urgency::Waited { peer } = floor { Some(peer) } else { None };
        let progress = FlightProgress {
            peers: starts.into_iter().collect(),
            is_starting: starts.is_some(),
            floor,
            ticket: None,
            started: None,
            is_detached: false,
        };
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

    /// Queues the run with `enter`. From now on its place in the queue follows the callers that wait.
    pub(crate) fn queue(&self, enter: impl FnOnce(Urgency) -> Ticket) -> Ticket {
        let mut progress = self.lock();
        let mut peers = progress.peers.iter().copied();
        let urgency = match progress.floor {
            Urgency::Waited { .. } => {
                peers.next().map_or(Urgency::Background, |peer| Urgency::Waited { peer })
            }
            floor => floor,
        };
        let ticket = enter(urgency);
        let handle = ticket.handle();
        for peer in peers {
            // In a pause, a run of the broker waits for the next probe, and these callers with it.
            drop(handle.join(peer));
        }
        progress.ticket = Some(handle);
        ticket
    }

    /// The uid of the person whose session the plugin gets.
    pub(crate) fn session_uid(&self) -> Option<u32> {
        self.attendance.session()?;
        match self.lock().floor {
            Urgency::Waited { peer } => Some(uid(peer)),
            Urgency::Background | Urgency::Urgent | Urgency::Forced => None,
        }
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
        if let Some(ticket) = &progress.ticket {
            ticket.set_floor(floor);
        }
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

    fn lock(&self) -> MutexGuard<'_, FlightProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for a run. While there is one, the run is not background work.
#[derive(Debug)]
pub(crate) struct Waiter {
    flight: Arc<Flight>,
    peer: u64,
    outcome: watch::Receiver<Option<RunResult>>,
    _attending: Option<Attending>,
}

impl Waiter {
    /// Lets the caller of `request` wait for `flight`. The caller attends it if it attends all of its runs, or has started
    /// this one in its own session.
    ///
    /// # Errors
    ///
    /// The run is queued, and its issuer is paused.
    pub(crate) fn new(flight: Arc<Flight>, request: &Request) -> Result<Self, Throttled> {
        {
            let mut progress = flight.lock();
            progress.join(request.caller.peer)?;
            if std::mem::take(&mut progress.is_starting)
                && let Some(starting) = progress.peers.first().copied()
            {
                progress.part(starting);
            }
        }
        let (peer, attendance) = (request.caller.peer, &flight.attendance);
        let sessions = request.session.as_ref().zip(attendance.session());
        let has_started_it = sessions.is_some_and(|(own, of_run)| Arc::ptr_eq(own, of_run));
        let attending = match &request.attendant {
            Some(attendant) => Some(attendant.attend(attendance)),
            None => has_started_it.then(|| attendance.attend()),
        };
        let outcome = flight.outcome.subscribe();
        flight.trace.get().inspect(|span| span.awaited());
        Ok(Self { flight, peer, outcome, _attending: attending })
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&mut self) -> RunResult {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        // `self.flight` keeps the sender alive.
        outcome.ok().and_then(|outcome| outcome.clone().flatten())
    }

    /// What it waits for at `now`, when its deadline has passed.
    pub(crate) fn pending(&self, now: Now) -> Pending {
        let progress = self.flight.lock();
        match progress.started {
            Some(started) => Pending::Running(now.boot.saturating_sub(started)),
            None => {
                Pending::Queued(progress.ticket.as_ref().and_then(|ticket| ticket.waits_for(Some(self.peer))))
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut progress = self.flight.lock();
        progress.part(self.peer);
        if progress.peers.is_empty() && progress.is_detached {
            self.flight.abandoned.cancel();
        }
    }
}
