//! When plugins run: one queue for all of them.
//!
//! The decisions are pure: `queue` says whose run is next, `pace` how fast an issuer may be asked, `words` what a failed
//! plugin said about that. Here they meet tasks, a lock and the clock.

mod lane;
mod line;
mod pace;
mod permit;
mod queue;
mod ring;
#[cfg(test)]
mod tests;
mod ticket;
mod words;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::sleep,
};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::{
    pace::{Change, Outcome},
    queue::{Answer, Queue},
};
use crate::{clock::Clock, plugin::Provider};

pub use pace::Cause;
pub use permit::Permit;
pub use ticket::{Throttled, Ticket, TicketHandle, WaitsFor};

/// Timers only wake: this bounds how late a suspend is noticed, during which tokio's clock stops.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Who waits for a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// No caller waits: a refresh ahead of expiry, prewarm, a refresh of many keys.
    Background,
    /// No caller waits, but the credential that is held ends soon and is in use. First class, and all of them together
    /// are one caller of their provider: neither starves the other.
    Urgent,
    /// A caller waits.
    Waited {
        /// Names the caller, since callers take turns.
        peer: u64,
    },
    /// A person asked for this run by name. It starts even while its issuer is paused.
    Forced,
}

/// Decides which plugin runs next. Clones share it.
///
/// Runs that somebody waits for go first, and so do urgent ones; among them turns go round by provider, then by caller.
/// Background runs get what is left, and never the last slot, if there are two. All runs of one [`Issuer`] share its
/// rate and its concurrency. An issuer that asks for fewer runs is paused; then one run tries it again, and more follow
/// step by step. A provider or issuer that is busy or paused holds up no other.
///
/// [`Issuer`]: crate::plugin::Issuer
#[derive(Clone, Debug)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    jitter: fn() -> f64,
    tasks: TaskTracker,
    /// A permit may come back where there is no runtime, while that is shut down.
    runtime: Handle,
    /// Wakes the timer to look at what it waits for.
    rearmed: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    tickets: HashMap<u64, oneshot::Sender<Result<Permit, Duration>>>,
    /// Whether there is a timer, and when it looks.
    timer: Option<Duration>,
}

impl Scheduler {
    /// A scheduler of `runs` runs at a time, at least one. `jitter` is uniform in [0, 1); `tasks` owns the one task that
    /// wakes it while a run waits for a time to come.
    ///
    /// Must be called within a tokio runtime.
    pub fn new(runs: usize, clock: Arc<dyn Clock>, jitter: fn() -> f64, tasks: TaskTracker) -> Self {
        let state = State { queue: Queue::new(runs), tickets: HashMap::new(), timer: None };
        let (state, runtime, rearmed) = (Mutex::new(state), Handle::current(), Notify::new());
        Self { shared: Arc::new(Shared { state, clock, jitter, tasks, runtime, rearmed }) }
    }

    /// Enters the queue for a run of `provider`. Dropping the ticket leaves it.
    pub fn enter(&self, provider: &Arc<Provider>, urgency: Urgency) -> Ticket {
        let (answer, turn) = oneshot::channel();
        let id = self.shared.with(|state, now| {
            let id = state.queue.enter(&provider.name, &provider.issuer, urgency, now);
            state.tickets.insert(id, answer);
            id
        });
        Ticket::new(&self.shared, provider, id, turn)
    }

    /// How long the pause of the provider's issuer still lasts; `None`: it is not paused.
    pub fn paused(&self, provider: &Provider) -> Option<Duration> {
        let now = self.shared.clock.now().boot;
        self.shared.state().queue.paused(&provider.issuer.name, now)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue, and answers those whom that concerns.
    fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state();
        let now = self.clock.now().boot; // with the lock held: it never goes back
        let value = change(&mut state, now);
        let answers = state.queue.dispatch(now);
        let answers: Vec<_> = answers
            .into_iter()
            .filter_map(|(id, answer)| Some((state.tickets.remove(&id)?, id, answer)))
            .collect();
        let wake = state.queue.next_wake();
        let (timer, is_new) = (state.timer, state.timer.is_none() && wake.is_some());
        if is_new {
            state.timer = wake;
        }
        drop(state);
        if is_new {
            self.tasks.spawn_on(Arc::clone(self).keep_time(), &self.runtime);
        } else if timer.is_some_and(|timer| wake.is_none_or(|wake| wake < timer)) {
            self.rearmed.notify_one();
        }
        // Without the lock: a permit that is not taken comes back here.
        for (ticket, id, answer) in answers {
            drop(ticket.send(match answer {
                Answer::Start => Ok(Permit::new(self, id)),
                Answer::Throttled(left) => Err(left),
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
            Some((issuer, Change::Paused(pause))) => {
                warn!(%issuer, ?pause, "the issuer asks for fewer runs; it is paused");
            }
            Some((issuer, Change::Resumed)) => {
                info!(%issuer, "the issuer works again; it is used slowly at first");
            }
            None => {}
        }
    }

    /// Dispatches while runs wait for a time to come.
    async fn keep_time(self: Arc<Self>) {
        while let Some(left) = self.look() {
            tokio::select! {
                () = sleep(left.min(LOOK_EVERY)) => {}
                () = self.rearmed.notified() => {}
            }
        }
    }

    /// Dispatches, and says how long there is nothing more to do. `None`: the timer ends.
    fn look(self: &Arc<Self>) -> Option<Duration> {
        self.with(|_, _| ());
        let mut state = self.state();
        let now = self.clock.now().boot;
        state.timer = state.queue.next_wake();
        state.timer.map(|wake| wake.saturating_sub(now))
    }
}
