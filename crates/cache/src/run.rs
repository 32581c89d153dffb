//! A run of the plugin of one key: all callers that wait for it share its outcome, also a failure.

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
use credbroker_plugin::PluginSpec;
use credbroker_runner::{Attendance, Attending, Ticket, TicketHandle, Urgency};

/// The outcome of a run; `None`: it was abandoned, and callers that started to wait meanwhile decide again.
pub(crate) type RunResult = Option<Result<Arc<Issued>, Failure>>;

/// A run from its claim to the publication of its outcome. The entry keeps the outcome, unless it was evicted meanwhile:
/// then only the callers that wait get it.
#[derive(Debug)]
pub(crate) struct Run {
    /// Why the run was started.
    pub reason: RunReason,
    /// What it shares with those who attend it.
    pub attendance: Arc<Attendance>,
    /// Cancelled when the outcome is not needed.
    pub abandoned: CancellationToken,
    pub span: RunSpan,
    /// Time since boot.
    claimed_at: Duration,
    /// Not set before the plugin has ended.
    pub ended: OnceLock<Ended>,
    outcome: watch::Sender<Option<RunResult>>,
    progress: Mutex<Progress>,
}

/// How the process of a plugin ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How long it ran.
    pub ran: Duration,
    /// Why it brought no output that can be used; `None`: it did.
    pub failure: Option<(RunOutcome, String)>,
}

#[derive(Debug)]
struct Progress {
    /// The processes of the callers that wait now. The run is queued for all of them, and starts in the first turn of any:
    /// a caller that joins it delays no other.
    peers: Vec<u64>,
    /// The urgency while no caller waits; [`Urgency::Waited`]: only callers need it.
    floor: Urgency,
    /// `None` before it is queued.
    ticket: Option<TicketHandle>,
    /// Time since boot; `None`: it is queued.
    started: Option<Duration>,
    /// The entry no longer refers to it.
    is_detached: bool,
}

impl Run {
    /// A run that is not queued yet. `floor` is its urgency while no caller waits. With [`Urgency::Waited`], that caller is
    /// the first one that waits: see [`Waiter::new`].
    pub(crate) fn new(
        spec: &PluginSpec,
        floor: Urgency,
        reason: RunReason,
        attendance: Attendance,
        now: Now,
    ) -> Self {
        let first = if let Urgency::Waited { peer } = floor { Some(peer) } else { None };
        let peers = first.into_iter().collect();
        let progress = Progress { peers, floor, ticket: None, started: None, is_detached: false };
        Self {
            reason,
            attendance: Arc::new(attendance),
            abandoned: CancellationToken::new(),
            span: RunSpan::start(spec, reason),
            claimed_at: now.boot,
            ended: OnceLock::new(),
            outcome: watch::Sender::new(None),
            progress: Mutex::new(progress),
        }
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
            let _paused = handle.join(peer);
        }
        progress.ticket = Some(handle);
        ticket
    }

    /// The uid of the person whose session the plugin gets.
    pub(crate) fn session_uid(&self) -> Option<u32> {
        self.attendance.session()?;
        match self.lock().floor {
            Urgency::Waited { peer } => Some(uid(peer)),
            Urgency::Background | Urgency::Urgent { .. } | Urgency::Forced => None,
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

    /// How long it was queued; `None`: it has not started.
    pub(crate) fn queued(&self) -> Option<Duration> {
        Some(self.started_at()?.saturating_sub(self.claimed_at))
    }

    /// How long the plugin has run at `now`, or ran until its end; `None`: it has not started.
    pub(crate) fn took(&self, now: Now) -> Option<Duration> {
        let started = self.started_at()?;
        Some(self.ended.get().map_or(now.boot.saturating_sub(started), |ended| ended.ran))
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

    /// Whether the outcome was published.
    pub(crate) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Waits for the outcome without being a caller: the run stays background work.
    pub(crate) async fn outcome(&self) -> RunResult {
        let outcome = self.outcome.subscribe().wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        outcome.ok().flatten().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for a run. While there is one, the run is not background work.
#[derive(Debug)]
pub(crate) struct Waiter {
    run: Arc<Run>,
    peer: u64,
    _attending: Option<Attending>,
}

impl Waiter {
    /// Lets the caller of `request` wait for `run`; `is_first`: the run was made for it. The caller attends it if it attends
    /// all of its runs, or has started this one in its own session.
    ///
    /// # Errors
    ///
    /// The run is queued, and its issuer is paused for this time.
    pub(crate) fn new(run: Arc<Run>, request: &Request, is_first: bool) -> Result<Self, Duration> {
        let peer = request.caller.peer;
        if !is_first {
            let mut progress = run.lock();
            if let Some(ticket) = &progress.ticket {
                ticket.join(peer)?;
            }
            progress.peers.push(peer);
        }
        let sessions = request.session.as_ref().zip(run.attendance.session());
        let has_started_it = sessions.is_some_and(|(own, of_run)| Arc::ptr_eq(own, of_run));
        let attending = match &request.attendant {
            Some(attendant) => Some(attendant.attend(&run.attendance)),
            None => has_started_it.then(|| run.attendance.attend()),
        };
        run.span.awaited();
        Ok(Self { run, peer, _attending: attending })
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&self) -> RunResult {
        self.run.outcome().await
    }

    /// What it waits for at `now`, when its deadline has passed.
    pub(crate) fn pending(&self, now: Now) -> Pending {
        let progress = self.run.lock();
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
        let mut progress = self.run.lock();
        if let Some(index) = progress.peers.iter().position(|waiting| *waiting == self.peer) {
            progress.peers.swap_remove(index);
        }
        if let Some(ticket) = &progress.ticket {
            ticket.part(self.peer);
        }
        if progress.peers.is_empty() && progress.is_detached {
            self.run.abandoned.cancel();
        }
    }
}
