//! When plugins run: one queue for all of them.
//!
//! The decisions are pure (`queue`, `pace`, `words`); here they meet tasks, a lock and the clock.

mod queue;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::task::TaskTracker;

use self::queue::Queue;
use super::RunError;
use crate::{clock::Clock, credential::Decoded, plugin::Provider};

/// Who waits for a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// No caller waits: a refresh ahead of expiry, prewarm, a refresh of many keys.
    Background,
    /// No caller waits, but the credential that is held ends soon and is in use.
    Urgent,
    /// A caller waits.
    Waited {
        /// Names the caller: callers take turns.
        peer: u64,
    },
    /// A person asked for this run by name. It starts even while the issuer is paused.
    Forced,
}

/// The issuer is paused, so the run that a caller waits for does not start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Throttled {
    /// The provider whose run it is.
    pub provider: Arc<str>,
    /// The issuer that asked for fewer runs.
    pub issuer: Arc<str>,
    /// How long the pause still lasts.
    pub retry_after: Duration,
}

impl Throttled {
    /// As the end of a run of the plugin `command`.
    pub fn into_error(self, command: Arc<str>) -> RunError {
        let Self { provider, issuer, retry_after } = self;
        RunError::Throttled { command, provider, issuer, retry_after }
    }
}

/// What a waiting run waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// One of all run slots.
    Slot {
        /// Other runs of its class that its provider has waiting.
        others: usize,
        /// `limits.pluginRuns`.
        runs: usize,
    },
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot { others, runs } => write!(f, "{others} {runs}"),
        }
    }
}

/// Decides which plugin runs next. Clones share it.
#[derive(Clone, Debug)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    clock: Arc<dyn Clock>,
    jitter: fn() -> f64,
    tasks: TaskTracker,
}

impl Scheduler {
    /// A scheduler of `runs` runs at a time, at least one. `jitter` is uniform in [0, 1); `tasks` owns the task that
    /// wakes it while a run waits for a time to come.
    pub fn new(runs: usize, clock: Arc<dyn Clock>, jitter: fn() -> f64, tasks: TaskTracker) -> Self {
        Self { shared: Arc::new(Shared { queue: Mutex::new(Queue::new(runs)), clock, jitter, tasks }) }
    }

    /// Enters the queue for a run of `provider`. Dropping the ticket leaves it.
    pub fn enter(&self, provider: &Arc<Provider>, urgency: Urgency) -> Ticket {
        let _ = (provider, urgency);
        Ticket { handle: TicketHandle { shared: Arc::clone(&self.shared), id: 0 } }
    }

    /// How long the pause of the provider's issuer still lasts; `None`: it is not paused.
    pub fn paused(&self, provider: &Provider) -> Option<Duration> {
        let _ = provider;
        None
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue. Dropping it gives the place up.
#[derive(Debug)]
pub struct Ticket {
    handle: TicketHandle,
}

impl Ticket {
    /// Changes and shows the place while somebody else waits for its turn.
    pub fn handle(&self) -> TicketHandle {
        self.handle.clone()
    }

    /// Waits for the turn. Dropping the future leaves the queue.
    ///
    /// # Errors
    ///
    /// [`Throttled`]: only for [`Urgency::Waited`], while the issuer is paused. All others wait until the pause ends.
    pub fn turn(self) -> impl Future<Output = Result<Permit, Throttled>> + Send {
        async move { Ok(Permit { shared: self.handle.shared, id: self.handle.id }) }
    }
}

/// Changes and shows a place in the queue.
#[derive(Clone, Debug)]
pub struct TicketHandle {
    shared: Arc<Shared>,
    id: u64,
}

impl TicketHandle {
    /// Changes the class of a run that waits: a caller came for it, or the last one left. It keeps its time of entry.
    /// Without effect once the run has its turn.
    ///
    /// Where it becomes [`Urgency::Waited`] while the issuer is paused, its turn ends at once with [`Throttled`].
    pub fn set_urgency(&self, urgency: Urgency) {
        let _ = (self.id, urgency, self.shared.queue());
    }

    /// What the run waits for; `None`: it has its turn, or was given up.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        None
    }
}

/// The right to one run. Dropping it gives the slot back and says nothing about the issuer.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    id: u64,
}

impl Permit {
    /// Gives the slot back, and learns from the run's end whether its issuer asks for fewer runs.
    pub fn finish<T>(self, result: &Result<T, RunError>) {
        let _ = (self.id, result, self.shared.clock.now(), self.shared.jitter, self.shared.tasks.len());
    }
}
