//! One run on its way: all who wait for it share its outcome, failures included.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Pending, state::Failure};
use crate::{
    clock::Now,
    credential::Issued,
    exec::{TicketHandle, Urgency},
};

/// What a run brought. `None`: it was given up, so callers that began to wait meanwhile decide again.
pub(crate) type Outcome = Option<Result<Arc<Issued>, Failure>>;

/// A run that is queued or in progress. Its outcome is kept as long as the cell leads to it; after an eviction only
/// those who waited get it.
#[derive(Debug)]
pub(crate) struct Flight {
    outcome: watch::Sender<Option<Outcome>>,
    progress: Mutex<Progress>,
    /// Cancelled: the outcome is of no use to anyone.
    pub(crate) given_up: CancellationToken,
}

#[derive(Debug)]
struct Progress {
    /// The callers that wait now. The run is in the line of the one that came last: a caller that joins a run does not
    /// wait behind what another one asked for.
    peers: Vec<u64>,
    /// How urgent it is when no caller waits.
    floor: Urgency,
    /// `None` before it is queued.
    ticket: Option<TicketHandle>,
    /// Time since boot; `None`: it waits for its turn.
    started: Option<Duration>,
    /// The cell leads to it no longer.
    detached: bool,
}

impl Progress {
    fn urgency(&self) -> Urgency {
        match (self.floor, self.peers.last()) {
            (Urgency::Forced, _) => Urgency::Forced,
            (_, Some(peer)) => Urgency::Waited { peer: *peer },
            (floor, None) => floor,
        }
    }

    /// The scheduler hears how urgent the run is now.
    fn tell(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.set_urgency(self.urgency());
        }
    }
}

impl Flight {
    /// A run that is not queued yet. `floor` is how urgent it is when no caller waits.
    pub(crate) fn new(floor: Urgency) -> Self {
        let progress = Progress { peers: Vec::new(), floor, ticket: None, started: None, detached: false };
        Self {
            outcome: watch::Sender::new(None),
            progress: Mutex::new(progress),
            given_up: CancellationToken::new(),
        }
    }

    /// How urgent it is now.
    pub(crate) fn urgency(&self) -> Urgency {
        self.lock().urgency()
    }

    /// It is queued: from now on its urgency follows who waits for it.
    pub(crate) fn queued(&self, ticket: TicketHandle) {
        let mut progress = self.lock();
        progress.ticket = Some(ticket);
        progress.tell();
    }

    /// It runs since `now`.
    pub(crate) fn started(&self, now: Now) {
        self.lock().started = Some(now.boot);
    }

    /// Whether it waits for its turn, and no caller for it.
    pub(crate) fn is_background(&self) -> bool {
        let progress = self.lock();
        progress.started.is_none() && progress.peers.is_empty()
    }

    /// How urgent it is when no caller waits.
    pub(crate) fn set_floor(&self, floor: Urgency) {
        let mut progress = self.lock();
        if progress.floor == floor || progress.floor == Urgency::Forced {
            return;
        }
        progress.floor = floor;
        progress.tell();
    }

    /// The cell leads elsewhere. If no caller waits, the run ends.
    pub(crate) fn detach(&self) {
        let mut progress = self.lock();
        progress.detached = true;
        if progress.peers.is_empty() {
            self.given_up.cancel();
        }
    }

    /// Publishes the end of the run.
    pub(crate) fn land(&self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }

    /// Its outcome, for those that are not callers: it stays background work.
    pub(crate) async fn landed(&self) -> Outcome {
        let landed = self.outcome.subscribe().wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        landed.ok().flatten().flatten()
    }

    /// What a caller that waits can read about it at `now`.
    pub(crate) fn pending(&self, now: Now) -> Pending {
        let progress = self.lock();
        match progress.started {
            Some(started) => Pending::Running(now.boot.saturating_sub(started)),
            None => Pending::Queued(progress.ticket.as_ref().and_then(TicketHandle::waits_for)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for a run. While there is one, the run is not background work.
#[derive(Debug)]
pub(crate) struct Waiter {
    flight: Arc<Flight>,
    peer: u64,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Waiter {
    /// `peer` waits for `flight` from now on.
    pub(crate) fn new(flight: Arc<Flight>, peer: u64) -> Self {
        let outcome = flight.outcome.subscribe();
        {
            let mut progress = flight.lock();
            progress.peers.push(peer);
            progress.tell();
        }
        Self { flight, peer, outcome }
    }

    /// Its outcome.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let landed = self.outcome.wait_for(Option::is_some).await;
        // The sender lives as long as `self.flight`.
        landed.ok().and_then(|outcome| outcome.clone().flatten())
    }

    /// What it waits for.
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut progress = self.flight.lock();
        if let Some(index) = progress.peers.iter().rposition(|peer| *peer == self.peer) {
            progress.peers.remove(index);
        }
        if progress.peers.is_empty() && progress.detached {
            self.flight.given_up.cancel();
        } else {
            progress.tell();
        }
    }
}
