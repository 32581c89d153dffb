//! A caller that waits for a run.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Flight, RunResult};
use crate::{Pending, Request};
use credbroker_observe::clock::Now;
use credbroker_runner::{Attending, Throttled};

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
