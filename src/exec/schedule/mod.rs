//! Decides when plugins run: one queue for all of them.
//!
//! The decisions are pure: `queue` picks the next run, `pace` limits the runs of an issuer, and `words` finds out whether
//! a failed plugin was throttled. This file adds the lock, the clock and the timer.

mod gate;
mod lane;
mod line;
mod pace;
mod permit;
mod queue;
mod ring;
mod share;
mod slots;
#[cfg(test)]
mod tests;
mod ticket;
mod turns;
mod urgency;
mod words;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};
use tracing::{info, warn};

use self::{
    pace::{Outcome, PaceChange},
    queue::{Admission, Queue},
};
use crate::{
    clock::Clock,
    plugin::{Issuer, Provider},
};

pub use gate::Cause;
pub use permit::Permit;
pub use share::RunShares;
pub use ticket::{Throttled, Ticket, TicketHandle, WaitsFor};
pub use urgency::Urgency;

/// The longest sleep of the timer. It bounds how late the end of a suspend is noticed, during which tokio's clock stops.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Decides which plugin runs next. Clones share one queue.
///
/// Runs that a caller waits for and urgent runs go first. Among them providers take turns, and so do the callers of one
/// provider. Background runs get the remaining slots, but not the last one if there are two or more. All runs of one
/// [`Issuer`] share its rate and its concurrency. An issuer that asks for fewer runs is paused; then one run tries it
/// again, and more follow step by step. A busy or paused provider or issuer does not delay any other.
///
/// [`Issuer`]: crate::plugin::Issuer
#[derive(Clone, Debug)]
pub struct Scheduler {
    shared: Arc<SharedScheduler>,
}

#[derive(Debug)]
struct SharedScheduler {
    state: Mutex<SchedulerState>,
    clock: Arc<dyn Clock>,
    jitter: fn() -> f64,
    /// Wakes the timer when it has to wake earlier.
    rearmed: Notify,
}

#[derive(Debug)]
struct SchedulerState {
    queue: Queue,
    tickets: HashMap<u64, oneshot::Sender<Result<Permit, Duration>>>,
    /// When the timer dispatches next; `None`: it waits to be rearmed.
    timer: Option<Duration>,
}

impl Scheduler {
    /// A scheduler of `runs` runs at a time, at least one. `jitter` is uniform in [0, 1).
    ///
    /// A run that must wait for a time starts only while [`keep_time`](Self::keep_time) runs.
    pub fn new(runs: usize, clock: Arc<dyn Clock>, jitter: fn() -> f64) -> Self {
        let state = SchedulerState { queue: Queue::new(runs), tickets: HashMap::new(), timer: None };
        let (state, rearmed) = (Mutex::new(state), Notify::new());
        Self { shared: Arc::new(SharedScheduler { state, clock, jitter, rearmed }) }
    }

    /// Sets shares: how many of the runs that started the callers of one process or uid may wait for. Without them, they
    /// may wait for all.
    pub fn set_shares(&self, shares: RunShares) {
        self.shared.with(|state, now| state.queue.set_shares(shares, now));
    }

    /// Sets how many runs may wait for a person at a time. Without it, none may.
    pub fn set_interactive(&self, runs: usize) {
        self.shared.with(|state, _| state.queue.set_interactive(runs));
    }

    /// Starts the runs whose time has come. Never returns.
    pub async fn keep_time(&self) {
        loop {
            match self.shared.dispatch_due() {
                Some(left) => tokio::select! {
                    () = sleep(left.min(LONGEST_SLEEP)) => {}
                    () = self.shared.rearmed.notified() => {}
                },
                None => self.shared.rearmed.notified().await,
            }
        }
    }

    /// Sets the limits of a newer configuration. Runs that have started go on, and pauses last.
    pub fn set_limits(&self, runs: usize, issuers: impl IntoIterator<Item = Arc<Issuer>>) {
        self.shared.with(|state, now| state.queue.set_limits(runs, issuers, now));
    }

    /// Queues a run of `provider`. Dropping the ticket removes it from the queue.
    pub fn enter(&self, provider: &Arc<Provider>, urgency: Urgency) -> Ticket {
        let (answer, turn) = oneshot::channel();
        let id = self.shared.with(|state, now| {
            let id = state.queue.enter(&provider.name, &provider.issuer, urgency, now);
            state.tickets.insert(id, answer);
            id
        });
        Ticket::new(&self.shared, provider, id, turn)
    }

    /// The pause of the provider's issuer, during which no run starts that a caller waits for; `None`: it is not paused.
    pub fn throttled(&self, provider: &Arc<Provider>) -> Option<Throttled> {
        let retry_after = self.paused(provider)?;
        Some(Throttled { provider: Arc::clone(provider), retry_after })
    }

    /// How long the pause of the provider's issuer still lasts; `None`: it is not paused.
    pub fn paused(&self, provider: &Provider) -> Option<Duration> {
        let now = self.shared.clock.now().boot;
        self.shared.state().queue.paused(&provider.issuer.name, now)
    }
}

impl SharedScheduler {
    fn state(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue, and answers the tickets that are affected.
    fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut SchedulerState, Duration) -> T) -> T {
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
                Admission::Start => Ok(Permit::new(self, id)),
                Admission::Throttled(left) => Err(left),
            }));
        }
        value
    }

    fn leave(self: &Arc<Self>, id: u64) {
        self.with(|state, now| {
            if state.tickets.remove(&id).is_some() {
                state.queue.leave(id, now);
            }
        });
    }

    fn finish(self: &Arc<Self>, id: u64, outcome: Outcome) {
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
    fn dispatch_due(self: &Arc<Self>) -> Option<Duration> {
        self.with(|_, _| ());
        let mut state = self.state();
        let now = self.clock.now().boot;
        state.timer = state.queue.next_wake();
        state.timer.map(|wake| wake.saturating_sub(now))
    }
}
