//! The queue behind its lock, with the clock, and the timer that wakes it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use tracing::{info, warn};

use super::{
    RunPermit,
    pace::{Outcome, PaceChange},
    queue::{Queue, RunAdmission},
};
use credbroker_observe::clock::Clock;

/// What the clones of a scheduler share.
#[derive(Debug)]
pub(super) struct SharedScheduler {
    pub(super) state: Mutex<SchedulerState>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) jitter: fn() -> f64,
    /// Wakes the timer when it has to wake earlier.
    pub(super) rearmed: Notify,
}

#[derive(Debug)]
pub(super) struct SchedulerState {
    pub(super) queue: Queue,
    pub(super) tickets: HashMap<u64, oneshot::Sender<Result<RunPermit, Duration>>>,
    /// When the timer dispatches next; `None`: it waits to be rearmed.
    pub(super) timer: Option<Duration>,
}

impl SchedulerState {
    pub(super) fn new(runs: usize) -> Self {
        Self { queue: Queue::new(runs), tickets: HashMap::new(), timer: None }
    }
}

impl SharedScheduler {
    pub(super) fn state(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue, and answers the tickets that are affected.
    pub(super) fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut SchedulerState, Duration) -> T) -> T {
        let mut state = self.state();
        let now = self.clock.now().boot; // read under the lock, so that it never goes back
        let value = change(&mut state, now);
        let answers = state.queue.dispatch(now);
        let answers: Vec<_> = answers
            .into_iter()
            .filter_map(|(id, answer)| Some((state.tickets.remove(&id)?, id, answer)))
            .collect();
        let wake = state.queue.next_wake();
        let is_sooner = wake.is_some_and(|wake| state.timer.is_none_or(|timer| wake < timer));
        if is_sooner {
            state.timer = wake;
        }
        drop(state);
        if is_sooner {
            self.rearmed.notify_one();
        }
        // The lock is free by now: dropping a permit that was not taken takes it again.
        for (ticket, id, answer) in answers {
            drop(ticket.send(match answer {
                RunAdmission::Start => Ok(RunPermit::new(self, id)),
                RunAdmission::Throttled(left) => Err(left),
            }));
        }
        value
    }

    /// Removes a run from the queue.
    pub(super) fn leave(self: &Arc<Self>, id: u64) {
        self.with(|state, now| {
            if state.tickets.remove(&id).is_some() {
                state.queue.leave(id, now);
            }
        });
    }

    /// Notes the end of a run.
    pub(super) fn finish(self: &Arc<Self>, id: u64, outcome: Outcome) {
        let u = (self.jitter)();
        match self.with(|state, now| state.queue.finish(id, outcome, u, now)) {
            Some((issuer, PaceChange::Paused(pause))) => {
                warn!(%issuer, ?pause, "the issuer asks for fewer runs; it is paused");
            }
            Some((issuer, PaceChange::Resumed)) => {
                info!(%issuer, "the issuer works again; its runs start slowly at first");
            }
            None => {}
        }
    }

    /// Dispatches, and returns how long there is nothing more to do; `None`: until the queue changes.
    pub(super) fn dispatch_due(self: &Arc<Self>) -> Option<Duration> {
        self.with(|_, _| ());
        let mut state = self.state();
        let now = self.clock.now().boot;
        state.timer = state.queue.next_wake();
        state.timer.map(|wake| wake.saturating_sub(now))
    }
}
