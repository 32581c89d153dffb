//! A run of the plugin of one key, from its claim: all callers that wait for it share its outcome, also a failure.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{error::Failure, request::Request};
use credbroker_credential::Issued;
use credbroker_observe::{clock::Now, metrics::RunReason, trace::RunSpan};
use credbroker_plugin::PluginSpec;
use credbroker_runner::{Attendance, Attending, RunError, TicketHandle, Urgency};

/// What a caller waits for before its run is queued, and when that is about to start.
pub(crate) const STARTING: &str = "the plugin run is about to start";

/// The outcome of a run; `None`: it was abandoned, and callers that started to wait meanwhile decide again.
pub(crate) type RunResult = Option<Result<Arc<Issued>, Arc<Failure>>>;

/// A run from its claim to the publication of its outcome. The entry keeps the outcome, unless it was evicted meanwhile:
/// then only the callers that wait get it.
#[derive(Debug)]
pub(crate) struct Run {
    pub reason: RunReason,
    /// What it shares with those who attend it.
    pub attendance: Arc<Attendance>,
    /// Cancelled when the outcome is not needed.
    pub abandoned: CancellationToken,
    pub span: RunSpan,
    /// Why the plugin failed, if callers get another error: that the issuer asks for fewer runs.
    pub throttled_by: OnceLock<RunError>,
    /// Since boot.
    claimed_at: Duration,
    ticket: TicketHandle,
    outcome: watch::Sender<Option<RunResult>>,
    progress: Mutex<Progress>,
}

/// Times are since boot.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The processes of the callers that wait now. The run is queued for all of them, and starts in the first turn of any:
    /// a caller that joins it delays no other.
    peers: Vec<u64>,
    /// The urgency while no caller waits; [`Urgency::Waited`]: only callers need it.
    floor: Urgency,
    /// When the plugin started; `None`: it is queued.
    pub started: Option<Duration>,
    /// When the plugin ended.
    pub ended: Option<Duration>,
    /// The account that its files selected before and after it; `None`: not the same one, or there are none.
    pub account: Option<u64>,
    /// The entry no longer refers to it.
    is_detached: bool,
}

impl Run {
    /// A run that is queued. `floor` is its urgency while no caller waits. With [`Urgency::Waited`], that caller is the first
    /// one that waits: see [`Waiter::new`].
    pub(crate) fn new(
        (spec, reason): (&PluginSpec, RunReason),
        attendance: Attendance,
        (floor, ticket): (Urgency, TicketHandle),
        now: Now,
    ) -> Self {
        let peers = if let Urgency::Waited { peer } = floor { vec![peer] } else { Vec::new() };
        let progress =
            Progress { peers, floor, started: None, ended: None, account: None, is_detached: false };
        Self {
            reason,
            attendance: Arc::new(attendance),
            abandoned: CancellationToken::new(),
            span: RunSpan::start(spec, reason),
            throttled_by: OnceLock::new(),
            claimed_at: now.boot,
            ticket,
            outcome: watch::Sender::new(None),
            progress: Mutex::new(progress),
        }
    }

    /// How long it was queued; `None`: it has not started.
    pub(crate) fn queued(&self) -> Option<Duration> {
        Some(self.progress().started?.saturating_sub(self.claimed_at))
    }

    /// How long the plugin ran; `None`: it has not ended.
    pub(crate) fn ran(&self) -> Option<Duration> {
        let progress = self.progress();
        Some(progress.ended?.saturating_sub(progress.started?))
    }

    /// Whether it is queued and no caller waits for it.
    pub(crate) fn is_background(&self) -> bool {
        let progress = self.progress();
        progress.started.is_none() && progress.peers.is_empty()
    }

    /// Changes the urgency while no caller waits. A forced run stays forced.
    pub(crate) fn set_floor(&self, floor: Urgency) {
        let mut progress = self.progress();
        if progress.floor != floor && progress.floor != Urgency::Forced {
            progress.floor = floor;
            self.ticket.set_floor(floor);
        }
    }

    /// Notes that the entry no longer refers to it. If no caller waits, the run is ended.
    pub(crate) fn detach(&self) {
        let mut progress = self.progress();
        progress.is_detached = true;
        if progress.peers.is_empty() {
            self.abandoned.cancel();
        }
    }

    pub(crate) fn publish(&self, outcome: RunResult) {
        self.outcome.send_replace(Some(outcome));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Waits for the outcome without being a caller: the run stays background work.
    pub(crate) async fn outcome(&self) -> RunResult {
        let outcome = self.outcome.subscribe().wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        outcome.ok().flatten().flatten()
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for a run. While there is one, the run is not background work.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub run: Arc<Run>,
    peer: u64,
    _attending: Option<Attending>,
}

impl Waiter {
    /// Lets the caller of `request` wait for `run`, unless the issuer is paused; `is_first`: the run was made for it. The
    /// caller attends it if it attends all of its runs, or has started this one in its own session.
    pub(crate) fn new(run: Arc<Run>, request: &Request, is_first: bool) -> Result<Self, Duration> {
        let peer = request.caller.peer;
        if !is_first {
            let mut progress = run.progress();
            run.ticket.join(peer)?;
            progress.peers.push(peer);
        }
        let sessions = request.session.as_ref().zip(run.attendance.session.as_ref());
        let has_started_it = sessions.is_some_and(|(own, of_run)| Arc::ptr_eq(own, of_run));
        let attending = match &request.attendant {
            Some(attendant) => Some(attendant.attend(&run.attendance)),
            None => has_started_it.then(|| run.attendance.attend()),
        };
        run.span.awaited();
        Ok(Self { run, peer, _attending: attending })
    }

    /// What it waits for at `now`, when its deadline has passed.
    pub(crate) fn pending(&self, now: Now) -> String {
        let started = self.run.progress().started;
        match started.ok_or_else(|| self.run.ticket.waits_for(Some(self.peer))) {
            Ok(at) => format!("the plugin has been running for {} s", now.boot.saturating_sub(at).as_secs()),
            Err(Some(reason)) => format!("the plugin run is queued: {reason}"),
            Err(None) => STARTING.to_owned(),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut progress = self.run.progress();
        if let Some(index) = progress.peers.iter().position(|waiting| *waiting == self.peer) {
            progress.peers.swap_remove(index);
        }
        self.run.ticket.part(self.peer);
        if progress.peers.is_empty() && progress.is_detached {
            self.run.abandoned.cancel();
        }
    }
}
