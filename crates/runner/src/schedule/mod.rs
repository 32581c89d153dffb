//! Decides when plugins run: one queue for all of them.
//!
//! The decisions are pure: `queue` picks the next run, in the order that `turns` keeps; `issuer` limits the runs of one
//! issuer; and `throttling` reads the stderr of a failed plugin. This file adds lock, clock, timer, tickets and permits.

mod issuer;
mod queue;
#[cfg(test)]
mod tests;
mod throttling;
mod turns;

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::sleep,
};
use tracing::{info, warn};

use self::{
    issuer::{Outcome, PaceChange, pause},
    queue::Queue,
};
use crate::error::{RunError, RunErrorKind};
use credbroker_observe::clock::Clock;
use credbroker_plugin::{Issuer, Provider};

pub use issuer::PROBE_EVERY;
pub use throttling::ForeignTexts;
pub use turns::{BROKER, RunSource, Urgency};

/// The longest sleep of the timer. It bounds how late the end of a suspend is noticed, during which tokio's clock stops.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Decides which plugin runs next. Clones share one queue.
///
/// Runs that a caller waits for and urgent runs go first. Uids take turns, and within a uid its processes; the broker takes
/// turns like a uid. A share applies only while others wait: while another uid waits, a uid has at most three
/// quarters of the slots, and while another process of the uid waits, a process has at most three quarters of those.
/// Background runs get the remaining slots, but not the last one if there are two or more.
///
/// All runs of one [`Issuer`] share its rate and its concurrency. An issuer that asks for fewer runs is paused; one run in
/// [`PROBE_EVERY`] tries it again. A busy or paused issuer does not delay any other.
#[derive(Clone, Debug)]
pub struct Scheduler(Arc<SharedScheduler>);

#[derive(Debug)]
struct SharedScheduler {
    state: Mutex<SchedulerState>,
    clock: Arc<dyn Clock>,
    jitter: fn() -> f64,
    /// When the timer dispatches next; `None`: when the queue changes.
    wake: watch::Sender<Option<Duration>>,
}

#[derive(Debug)]
struct SchedulerState {
    queue: Queue,
    tickets: HashMap<u64, oneshot::Sender<Result<RunPermit, Duration>>>,
}

impl Scheduler {
    /// A scheduler of `runs` runs at a time, at least one. `jitter` is uniform in [0, 1).
    ///
    /// A run that must wait for a time starts only while [`keep_time`](Self::keep_time) runs.
    pub fn new(runs: usize, clock: Arc<dyn Clock>, jitter: fn() -> f64) -> Self {
        let state = Mutex::new(SchedulerState { queue: Queue::new(runs), tickets: HashMap::new() });
        Self(Arc::new(SharedScheduler { state, clock, jitter, wake: watch::Sender::new(None) }))
    }

    /// Sets how many runs may wait for a user at a time. Without it, none may.
    pub fn set_interactive(&self, runs: usize) {
        self.with(|state, _| state.queue.interactive = runs);
    }

    /// Sets the limits of a newer configuration. Runs that have started go on, and pauses last.
    pub fn set_limits(&self, runs: usize, issuers: impl IntoIterator<Item = Arc<Issuer>>) {
        self.with(|state, _| state.queue.set_limits(runs, issuers));
    }

    /// Starts the runs whose time has come. Never returns.
    pub async fn keep_time(&self) {
        let mut wakes = self.0.wake.subscribe();
        self.with(|_, _| ());
        loop {
            let wake = *wakes.borrow_and_update();
            let left = wake.map(|wake| wake.saturating_sub(self.now()).min(LONGEST_SLEEP));
            tokio::select! {
                () = sleep(left.unwrap_or_default()), if left.is_some() => self.with(|_, _| ()),
                _changed = wakes.changed() => {}
            }
        }
    }

    /// Queues a run of `provider`, which `source` defines. Dropping the ticket removes it from the queue.
    pub fn enter(&self, provider: &Provider, urgency: Urgency, source: RunSource) -> Ticket {
        let (answer, turn) = oneshot::channel();
        let issuer = &provider.issuer;
        let id = self.with(|state, _| {
            let id = state.queue.enter(&provider.name, issuer, (urgency, source));
            state.tickets.insert(id, answer);
            id
        });
        Ticket {
            handle: TicketHandle { scheduler: self.clone(), issuer: Arc::clone(&issuer.name), id },
            turn,
        }
    }

    /// The turn of a run that starts no process and asks no issuer: it takes no slot, and waits for nothing.
    pub fn pass(&self, provider: &Provider) -> Ticket {
        // The queue never gives this number, so nothing that is done with it changes the queue.
        const NO_PLACE: u64 = 0;
        let (answer, turn) = oneshot::channel();
        let permit = RunPermit { scheduler: self.clone(), id: NO_PLACE, outcome: Outcome::Unknown };
        // `turn` is open, so that the permit arrives.
        let _sent = answer.send(Ok(permit));
        let issuer = Arc::clone(&provider.issuer.name);
        Ticket { handle: TicketHandle { scheduler: self.clone(), issuer, id: NO_PLACE }, turn }
    }

    /// How long the pause of the provider's issuer still lasts; `None`: it is not paused.
    pub fn paused(&self, provider: &Provider) -> Option<Duration> {
        self.state().queue.paused(&provider.issuer.name, self.now())
    }

    fn state(&self) -> MutexGuard<'_, SchedulerState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.0.clock.now().boot
    }

    /// Changes the queue, and answers the tickets that are affected.
    fn with<T>(&self, change: impl FnOnce(&mut SchedulerState, Duration) -> T) -> T {
        let mut state = self.state();
        let now = self.now(); // read under the lock, so that it never goes back
        let value = change(&mut state, now);
        let answers = state.queue.dispatch(now);
        let answers: Vec<_> = answers
            .into_iter()
            .filter_map(|(id, answer)| Some((state.tickets.remove(&id)?, id, answer)))
            .collect();
        let wake = state.queue.next_wake(now);
        self.0.wake.send_if_modified(|known| mem::replace(known, wake) != wake);
        drop(state);
        // The lock is free by now: dropping a permit that was not taken takes it again.
        for (ticket, id, answer) in answers {
            let permit = |()| RunPermit { scheduler: self.clone(), id, outcome: Outcome::Unknown };
            drop(ticket.send(answer.map(permit)));
        }
        value
    }
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
#[must_use = "dropping a ticket leaves the queue"]
pub struct Ticket {
    /// Changes or shows the place while [`turn`](Self::turn) waits.
    pub handle: TicketHandle,
    turn: oneshot::Receiver<Result<RunPermit, Duration>>,
}

/// Changes and shows a place in the queue, without keeping it.
#[derive(Clone, Debug)]
pub struct TicketHandle {
    scheduler: Scheduler,
    issuer: Arc<str>,
    id: u64,
}

impl Ticket {
    /// Waits for the turn. Dropping the future leaves the queue, and returns the slot if it was granted meanwhile.
    ///
    /// # Errors
    ///
    /// The issuer is or becomes paused for this time. Only for [`Urgency::Waited`]; other runs wait for the end.
    pub async fn turn(mut self) -> Result<RunPermit, Duration> {
        match (&mut self.turn).await {
            Ok(answer) => answer,
            // Not reached: the queue keeps the sender until it answers or this ticket is dropped.
            Err(_closed) => std::future::pending().await,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let id = self.handle.id;
        self.handle.scheduler.with(|state, _| {
            if state.tickets.remove(&id).is_some() {
                state.queue.remove(id);
            }
        });
    }
}

impl TicketHandle {
    /// Queues the run for one more caller too: it starts in the first turn of any. No effect once the run has its turn.
    ///
    /// # Errors
    ///
    /// The issuer is paused for this time. The run is still queued.
    pub fn join(&self, peer: u64) -> Result<(), Duration> {
        self.scheduler.with(|state, now| state.queue.join(self.id, peer, now))
    }

    /// Undoes one [`join`](Self::join). A run without callers is background work.
    pub fn part(&self, peer: u64) {
        self.scheduler.with(|state, _| state.queue.part(self.id, peer));
    }

    /// Changes the urgency that a queued run has without callers. The run keeps its order of entry.
    pub fn set_floor(&self, floor: Urgency) {
        self.scheduler.with(|state, _| state.queue.set_floor(self.id, floor));
    }

    /// What the run waits for, as a clause of the answer to a caller in `peer`; `None`: it has its turn, or left the queue.
    pub fn waits_for(&self, peer: Option<u64>) -> Option<String> {
        let (cause, others) = self.scheduler.state().queue.waits_for(self.id, peer, self.scheduler.now())?;
        let others = match others {
            0 => String::new(),
            1 => "; 1 other run of the provider waits".to_owned(),
            others => format!("; {others} other runs of the provider wait"),
        };
        Some(cause.clause(&self.issuer) + &others)
    }
}

/// The right to one run. Dropping it returns the slot and says nothing about the issuer.
#[derive(Debug)]
#[must_use = "dropping a permit returns its slot"]
pub struct RunPermit {
    scheduler: Scheduler,
    id: u64,
    outcome: Outcome,
}

impl RunPermit {
    /// Counts the run among those that wait for a user, and frees its slot. Returns whether there was room.
    pub fn step_aside(&self) -> bool {
        self.scheduler.with(|state, _| state.queue.step_aside(self.id))
    }

    /// Returns the slot, and learns from `result` whether the plugin was throttled: for how long its key is paused then.
    /// `is_first`: no run of the key was throttled since its last credential. `foreign` is called only if it matters.
    pub fn finish<T>(
        mut self,
        result: &Result<T, RunError>,
        is_first: bool,
        foreign: impl FnOnce() -> ForeignTexts,
    ) -> Option<Duration> {
        self.outcome = outcome(result, foreign);
        match self.outcome {
            Outcome::Throttled(throttling) => Some(pause(throttling, is_first, (self.scheduler.0.jitter)())),
            Outcome::Success | Outcome::Reached | Outcome::Unknown => None,
        }
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let u = (self.scheduler.0.jitter)();
        match self.scheduler.with(|state, now| state.queue.finish(self.id, self.outcome, u, now)) {
            Some((issuer, PaceChange::Paused(pause))) => {
                warn!(%issuer, ?pause, "the issuer asks for fewer runs; its runs are paused");
            }
            Some((issuer, PaceChange::Resumed)) => info!(%issuer, "the issuer works again"),
            None => {}
        }
    }
}

fn outcome<T>(result: &Result<T, RunError>, foreign: impl FnOnce() -> ForeignTexts) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(RunError { kind, stderr, .. }) => match kind {
            RunErrorKind::Exit(_) | RunErrorKind::Signal(_) | RunErrorKind::Timeout(..) => {
                throttling::throttling(stderr, foreign).map_or(Outcome::Reached, Outcome::Throttled)
            }
            RunErrorKind::Decode(_) | RunErrorKind::OutputTooLarge(_) => Outcome::Reached,
            // The plugin did not ask the issuer.
            _ => Outcome::Unknown,
        },
    }
}
