//! A caller that waits for a run.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Flight, RunResult};
use crate::{cache::Request, exec::Attending};

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
    pub(crate) fn new(flight: Arc<Flight>, request: &Request) -> Self {
        let (peer, attendance) = (request.caller.peer, &flight.attendance);
        let sessions = request.session.as_ref().zip(attendance.session());
        let has_started_it = sessions.is_some_and(|(own, of_run)| Arc::ptr_eq(own, of_run));
        let attending = match &request.attendant {
            Some(attendant) => Some(attendant.attend(attendance)),
            None => has_started_it.then(|| attendance.attend()),
        };
        let outcome = flight.outcome.subscribe();
        flight.trace.get().inspect(|span| span.awaited());
        {
            let mut progress = flight.lock();
            progress.peers.push(peer);
            progress.update_scheduler();
        }
        Self { flight, peer, outcome, _attending: attending }
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&mut self) -> RunResult {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        // `self.flight` keeps the sender alive.
        outcome.ok().and_then(|outcome| outcome.clone().flatten())
    }

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
        if progress.peers.is_empty() && progress.is_detached {
            self.flight.abandoned.cancel();
        } else {
            progress.update_scheduler();
        }
    }
}
