//! Decides when plugins run: one queue for all of them.
//!
//! The decisions are pure: `queue` picks the next run, in the order that `turns` keeps; `issuer` limits the runs of one
//! issuer; and `throttling` finds out whether a failed plugin was throttled. This file adds the lock, the clock, the timer,
//! and the tickets and permits of runs.

mod issuer;
mod queue;
#[cfg(test)]
mod tests;
mod throttling;
mod turns;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};
use tracing::{info, warn};

use self::{
    issuer::{Outcome, PaceChange, pause},
    queue::{Queue, RunAdmission},
};
use crate::{RunError, error::seconds};
use credbroker_observe::clock::Clock;
use credbroker_plugin::{Issuer, Provider};

pub use issuer::PROBE_EVERY;
pub use throttling::ForeignTexts;
pub use turns::{BROKER, Cause, RunSource, Urgency};

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
pub struct Scheduler {
    shared: Arc<SharedScheduler>,
}

/// What the clones of a scheduler share.
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
    tickets: HashMap<u64, oneshot::Sender<Result<RunPermit, Duration>>>,
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

    /// Sets how many runs may wait for a person at a time. Without it, none may.
    pub fn set_interactive(&self, runs: usize) {
        self.shared.with(|state, _| state.queue.set_interactive(runs));
    }

    /// Sets the limits of a newer configuration. Runs that have started go on, and pauses last.
    pub fn set_limits(&self, runs: usize, issuers: impl IntoIterator<Item = Arc<Issuer>>) {
        self.shared.with(|state, _| state.queue.set_limits(runs, issuers));
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

    /// Queues a run of `provider`, which `source` defines. Dropping the ticket removes it from the queue.
    pub fn enter(&self, provider: &Arc<Provider>, urgency: Urgency, source: RunSource) -> Ticket {
        let (answer, turn) = oneshot::channel();
        let id = self.shared.with(|state, _| {
            let id = state.queue.enter(&provider.name, &provider.issuer, (urgency, source));
            state.tickets.insert(id, answer);
            id
        });
        let (shared, provider) = (Arc::clone(&self.shared), Arc::clone(provider));
        Ticket { handle: TicketHandle { shared, provider, id }, turn }
    }

    /// How long the pause of the provider's issuer still lasts; `None`: it is not paused.
    pub fn paused(&self, provider: &Provider) -> Option<Duration> {
        let now = self.shared.clock.now().boot;
        self.shared.state().queue.paused(&provider.issuer.name, now)
    }

    /// The same, as the error of a run that does not start.
    pub fn throttled(&self, provider: &Arc<Provider>) -> Option<Throttled> {
        let retry_after = self.paused(provider)?;
        Some(Throttled { provider: Arc::clone(provider), of_key: false, retry_after })
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
        let wake = state.queue.next_wake(now);
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
            let shared = Arc::clone(self);
            drop(ticket.send(match answer {
                RunAdmission::Start => Ok(RunPermit { shared, id, outcome: Outcome::Unknown }),
                RunAdmission::Throttled(left) => Err(left),
            }));
        }
        value
    }

    /// Dispatches, and returns how long there is nothing more to do; `None`: until the queue changes.
    fn dispatch_due(self: &Arc<Self>) -> Option<Duration> {
        self.with(|_, _| ());
        let mut state = self.state();
        let now = self.clock.now().boot;
        state.timer = state.queue.next_wake(now);
        state.timer.map(|wake| wake.saturating_sub(now))
    }
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
#[must_use = "dropping a ticket leaves the queue"]
pub struct Ticket {
    handle: TicketHandle,
    turn: oneshot::Receiver<Result<RunPermit, Duration>>,
}

/// Changes and shows a place in the queue, without keeping it.
#[derive(Clone, Debug)]
pub struct TicketHandle {
    shared: Arc<SharedScheduler>,
    provider: Arc<Provider>,
    id: u64,
}

impl Ticket {
    /// A handle to change or show the place while [`turn`](Self::turn) waits.
    pub fn handle(&self) -> TicketHandle {
        self.handle.clone()
    }

    /// Waits for the turn. Dropping the future leaves the queue, and returns the slot if it was granted meanwhile.
    ///
    /// # Errors
    ///
    /// [`Throttled`]: the issuer is paused, or becomes paused. Only for [`Urgency::Waited`]; other runs wait for the end of
    /// the pause.
    pub async fn turn(mut self) -> Result<RunPermit, Throttled> {
        match (&mut self.turn).await {
            Ok(answer) => answer.map_err(|left| self.handle.throttled(left)),
            // Not reached: the queue keeps the sender until it answers or this ticket is dropped.
            Err(_closed) => std::future::pending().await,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let id = self.handle.id;
        self.handle.shared.with(|state, _| {
            if state.tickets.remove(&id).is_some() {
                state.queue.leave(id);
            }
        });
    }
}

impl TicketHandle {
    /// Queues the run for one more caller too: it starts in the first turn of any of them, or in its own. Has no effect once
    /// the run has its turn.
    ///
    /// # Errors
    ///
    /// [`Throttled`]: the issuer is paused. The run is still queued.
    pub fn join(&self, peer: u64) -> Result<(), Throttled> {
        let joined = self.shared.with(|state, now| state.queue.join(self.id, peer, now));
        joined.map_err(|left| self.throttled(left))
    }

    /// Undoes one [`join`](Self::join). A run without callers is background work.
    pub fn part(&self, peer: u64) {
        self.shared.with(|state, _| state.queue.part(self.id, peer));
    }

    /// Changes the urgency that a queued run has without callers. The run keeps its order of entry.
    pub fn set_floor(&self, floor: Urgency) {
        self.shared.with(|state, _| state.queue.set_floor(self.id, floor));
    }

    /// What the run waits for, for the answer to a caller in `peer`; `None`: it has its turn, or left the queue.
    pub fn waits_for(&self, peer: Option<u64>) -> Option<WaitsFor> {
        let now = self.shared.clock.now().boot;
        let (cause, others) = self.shared.state().queue.waits_for(self.id, peer, now)?;
        Some(WaitsFor { provider: Arc::clone(&self.provider), cause, others })
    }

    fn throttled(&self, retry_after: Duration) -> Throttled {
        Throttled { provider: Arc::clone(&self.provider), of_key: false, retry_after }
    }
}

/// The right to one run. Dropping it returns the slot and says nothing about the issuer.
#[derive(Debug)]
#[must_use = "dropping a permit returns its slot"]
pub struct RunPermit {
    shared: Arc<SharedScheduler>,
    id: u64,
    outcome: Outcome,
}

impl RunPermit {
    /// Counts the run among those that wait for a person, and returns whether there was room for it. Its slot is free from
    /// then on.
    pub fn step_aside(&self) -> bool {
        self.shared.with(|state, _| state.queue.step_aside(self.id))
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
            Outcome::Throttled(throttling) => Some(pause(throttling, is_first, (self.shared.jitter)())),
            Outcome::Success | Outcome::Reached | Outcome::Unknown => None,
        }
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let u = (self.shared.jitter)();
        match self.shared.with(|state, now| state.queue.finish(self.id, self.outcome, u, now)) {
            Some((issuer, PaceChange::Paused(pause))) => {
                warn!(%issuer, ?pause, "the issuer asks for fewer runs; it is paused");
            }
            Some((issuer, PaceChange::Resumed)) => info!(%issuer, "the issuer works again"),
            None => {}
        }
    }
}

/// What the end of a run says about its issuer.
fn outcome<T>(result: &Result<T, RunError>, foreign: impl FnOnce() -> ForeignTexts) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(
            RunError::Exit { stderr, .. }
            | RunError::Signal { stderr, .. }
            | RunError::Timeout { stderr, .. },
        ) => throttling::throttling(stderr, foreign).map_or(Outcome::Reached, Outcome::Throttled),
        Err(RunError::Decode { .. } | RunError::OutputTooLarge { .. }) => Outcome::Reached,
        // The plugin did not ask the issuer.
        Err(
            RunError::ArgumentsTooLong { .. }
            | RunError::Directory { .. }
            | RunError::ExecInfo { .. }
            | RunError::NeedsTerminal { .. }
            | RunError::NotAllowed { .. }
            | RunError::NotFound { .. }
            | RunError::Panicked { .. }
            | RunError::Recursion { .. }
            | RunError::Spawn { .. }
            | RunError::TerminalLost { .. }
            | RunError::Throttled { .. }
            | RunError::Unanswered { .. }
            | RunError::Unreadable { .. },
        ) => Outcome::Unknown,
    }
}

/// The issuer is paused, or only the key, so the run that a caller waits for does not start.
#[derive(Clone, Debug)]
pub struct Throttled {
    /// The provider whose run it is.
    pub provider: Arc<Provider>,
    /// Only the key is paused.
    pub of_key: bool,
    /// How long the pause still lasts.
    pub retry_after: Duration,
}

impl Throttled {
    /// The error of a run of the plugin `command`.
    pub fn into_error(self, command: Arc<str>) -> RunError {
        let Self { provider, of_key, retry_after } = self;
        let (provider, issuer) = (Arc::clone(&provider.name), Arc::clone(&provider.issuer.name));
        RunError::Throttled { command, provider, issuer, of_key, retry_after }
    }
}

/// What a run waits for. Its `Display` is a clause for a message.
#[derive(Clone, Debug)]
pub struct WaitsFor {
    /// The provider whose run it is.
    pub provider: Arc<Provider>,
    /// Why it waits.
    pub cause: Cause,
    /// The number of other queued runs of the provider, before or behind it.
    pub others: usize,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = &self.provider.issuer.name;
        match self.cause {
            Cause::Slots { runs } => write!(f, "all run slots are in use (`limits.pluginRuns`: {runs})"),
            Cause::ProcessShare { runs } => {
                write!(f, "this process has its share of runs ({runs}), and another one of its uid waits")
            }
            Cause::UidShare { runs } => {
                write!(
                    f,
                    "this uid has its share of `limits.pluginRuns` ({runs} runs), and another one waits"
                )
            }
            Cause::Concurrency { runs } => {
                write!(f, "issuer `{issuer}` is at its limit of runs at a time ({runs})")
            }
            Cause::Rate { runs } => {
                write!(f, "issuer `{issuer}` is at its limit of runs in a second ({runs})")
            }
            Cause::Paused { left } => {
                let left = seconds(left);
                write!(f, "issuer `{issuer}` asked for fewer runs and is paused for another {left}")
            }
            Cause::Probe => {
                write!(f, "issuer `{issuer}` asked for fewer runs, and one run is trying it again")
            }
        }?;
        match self.others {
            0 => Ok(()),
            1 => write!(f, "; 1 other run of the provider waits"),
            others => write!(f, "; {others} other runs of the provider wait"),
        }
    }
}
