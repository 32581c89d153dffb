//! The credentials in memory: one cell per key, one run at a time in each, refreshed ahead of expiry.

mod caller;
mod entries;
mod entry;
mod error;
mod flight;
mod manage;
mod overview;
mod policy;
mod rejection;
mod run;
mod select;
#[cfg(test)]
mod simulation;
mod state;
mod suspicion;
#[cfg(test)]
mod tests;
mod upkeep;
mod watching;

use std::{
    fmt,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::{Clock, Now},
    credential::{Cluster, Encode, Issued},
    exec::{PluginRunner, Scheduler, Urgency},
    plugin::{PluginKey, PluginSpec},
};
use entries::Entries;
use entry::{Entry, Interest};
use flight::Waiter;
use policy::{Decision, decide};

pub use caller::Caller;
pub use error::{CacheError, Failed, Pending};
pub use overview::{Held, Holding, RejectionState};
pub use select::Selector;
pub use suspicion::{ReportOutcome, Reported, Verify};
pub use watching::Watch;

/// How long a caller waits that has no deadline.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(60);

/// Serves credentials from memory and runs plugins for what is missing or due. Clones share it.
#[derive(Debug)]
pub struct CredentialCache<R> {
    inner: Arc<Inner<R>>,
}

impl<R> Clone for CredentialCache<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// What a cache is made of.
pub struct CacheParts<R> {
    /// Runs plugins.
    pub runner: R,
    /// Decides when they run.
    pub scheduler: Scheduler,
    /// Encodes credentials as they are sent.
    pub encode: Encode,
    /// Asks API servers about credentials that seem to be rejected.
    pub verify: Verify,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Uniform in [0, 1): spreads refreshes and retries.
    pub jitter: fn() -> f64,
    /// Names this broker start in every generation.
    pub epoch: Arc<str>,
    /// Keys at most.
    pub entries: usize,
    /// Owns the runs.
    pub tasks: TaskTracker,
    /// Cancelled: no run starts any more, and those in flight are ended.
    pub draining: CancellationToken,
}

#[derive(Debug)]
struct Inner<R> {
    parts: CacheParts<R>,
    entries: Mutex<Entries>,
    /// Wakes the periodic look when there is something to look at.
    occupied: Notify,
    generations: AtomicU64,
    /// Places for callers that wait.
    waiting: Semaphore,
}

/// Who asks, and on what terms.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// How long the caller waits; `None`: it did not say.
    pub deadline: Option<Duration>,
    /// The API server that may be asked whether it accepts the credential; `None`: none may.
    pub verify_at: Option<Arc<Cluster>>,
}

/// What a caller that is not served from memory begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum First {
    /// What the state calls for.
    Decide,
    /// The outcome of the run in flight, if it has not landed yet.
    Join {
        /// A failure is the answer, even while something valid is held.
        may_fail: bool,
    },
    /// The outcome of a run, for a credential that was rejected or seems to be.
    Run {
        /// A failure is the answer, even while something valid is held.
        may_fail: bool,
    },
}

/// What memory has for a caller.
#[derive(Debug)]
pub enum Lookup {
    /// A valid credential.
    Served(Arc<Issued>),
    /// There is none, or the caller has it already: [`CredentialCache::get`] decides.
    Undecided,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// An empty cache.
    pub fn new(parts: CacheParts<R>) -> Self {
        let (entries, occupied, generations) = (Mutex::default(), Notify::new(), AtomicU64::new(1));
        let waiting = Semaphore::new(error::WAITING);
        Self { inner: Arc::new(Inner { parts, entries, occupied, generations, waiting }) }
    }

    /// The credential of `key` from memory, if it can be served without a doubt. Does not wait.
    pub fn lookup(&self, key: &PluginKey, caller: &Caller) -> Lookup {
        let now = self.now();
        let entry = self.lock().find(key).map(Arc::clone);
        entry.map_or(Lookup::Undecided, |entry| {
            entry.touch(now);
            self.look_up(&entry, caller, now).map_or(Lookup::Undecided, Lookup::Served)
        })
    }

    /// The valid credential of `entry`, unless `caller` comes back for it before it is due.
    fn look_up(&self, entry: &Arc<Entry>, caller: &Caller, now: Now) -> Option<Arc<Issued>> {
        let file = entry.spec.file_version();
        let (issued, due, fresh) = {
            let state = entry.cell.borrow();
            let fresh = state.valid(now)?.is_fresh_at(now);
            match decide(&state, false, file, now) {
                Decision::Serve(issued) => (issued, false, fresh),
                Decision::ServeAndRefresh(issued) => (issued, true, fresh),
                Decision::Wait | Decision::Fail(_) => return None,
            }
        };
        if entry.callers.repeats(caller.name, issued.generation.number(), now.boot) && fresh {
            return None;
        }
        if due {
            let look = entry.look(Urgency::Background, |state| decide(state, false, file, now));
            self.start(entry, &look);
        }
        Some(issued)
    }

    /// The credential of `spec`: from memory while it is valid, else from one run that all who ask share.
    ///
    /// A caller that comes back for the generation that it has, before that is due, is suspected to have seen it
    /// rejected; see [`Request::verify_at`].
    ///
    /// Dropping the future does not stop a run that it started: it belongs to the cache, and others may wait for it.
    ///
    /// # Errors
    ///
    /// [`Failed`] says what went wrong and for how long the failure is held.
    pub async fn get(&self, spec: PluginSpec, request: &Request) -> Result<Arc<Issued>, Failed> {
        let interest = self.enter(spec)?;
        let (entry, caller) = (&interest.0, &request.caller);
        let now = self.now();
        if let Some(issued) = self.look_up(entry, caller, now) {
            return Ok(issued);
        }
        let repeated = entry.cell.borrow().valid(now).map(|current| Arc::clone(&current.issued));
        let issued = match repeated {
            Some(issued) => self.settle(entry, request, self.suspected(entry, issued, request)).await?,
            None => self.settle(entry, request, ready(First::Decide)).await?,
        };
        entry.callers.repeats(caller.name, issued.generation.number(), self.now().boot);
        Ok(issued)
    }

    /// Follows the credential of `spec`, and keeps it refreshed.
    ///
    /// # Errors
    ///
    /// There is no room for another key.
    pub fn watch(&self, spec: PluginSpec, caller: Caller) -> Result<Watch<R>, Failed> {
        Ok(Watch::new(self.clone(), self.enter(spec)?, caller))
    }

    /// Fetches the credential of `spec` before a caller asks, when there is nothing more urgent to run.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn fetch_ahead(&self, spec: PluginSpec) -> Result<(), Failed> {
        let interest = self.enter(spec)?;
        let (entry, now) = (&interest.0, self.now());
        let look =
            entry.look(Urgency::Background, |state| decide(state, false, entry.spec.file_version(), now));
        self.start(entry, &look);
        match (look.decision, look.flight) {
            (Decision::Fail(failed), _) => Err(failed),
            (Decision::Wait, Some(flight)) => match flight.landed().await {
                Some(Err(failure)) => Err(failure.at(self.now(), false)),
                Some(Ok(_)) | None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Serves, waits or fails, as often as it takes, until the deadline of `request`. Never fails while something valid
    /// is held, unless `first` says that it may.
    async fn settle(
        &self,
        entry: &Arc<Entry>,
        request: &Request,
        first: impl Future<Output = First>,
    ) -> Result<Arc<Issued>, Failed> {
        let caller = &request.caller;
        let limit = request.deadline.unwrap_or(WITHOUT_DEADLINE);
        let mut waiter = None;
        let mut place = None;
        let mut may_fail = false;
        let settled = async {
            let mut first = first.await;
            may_fail = matches!(first, First::Join { may_fail: true } | First::Run { may_fail: true });
            loop {
                let (now, file) = (self.now(), entry.spec.file_version());
                let first = std::mem::replace(&mut first, First::Decide);
                let is_cold = first == First::Decide;
                let look = entry.look(Urgency::Background, |state| match first {
                    First::Run { .. } => Decision::Wait,
                    First::Join { .. } if state.flight.is_some() => Decision::Wait,
                    First::Join { .. } | First::Decide => decide(state, caller.at_terminal, file, now),
                });
                self.start(entry, &look);
                match look.decision {
                    Decision::Serve(issued) | Decision::ServeAndRefresh(issued) => return Ok(issued),
                    Decision::Fail(failed) => return Err(failed),
                    Decision::Wait => {}
                }
                let Some(flight) = look.flight else { continue };
                // A watch has no deadline, and is limited where it is opened.
                if place.is_none() && limit < Duration::MAX {
                    place =
                        Some(self.inner.waiting.try_acquire().map_err(|_full| CacheError::TooManyWaiting)?);
                }
                let outcome = tokio::select! {
                    biased;
                    outcome = waiter.insert(Waiter::new(flight, caller.peer)).outcome() => outcome,
                    // After an eviction, a later run may have brought one before the run that this caller waits for.
                    () = entry.holds(|| self.now()), if is_cold => continue,
                };
                match outcome {
                    Some(Ok(issued)) if issued.is_valid_at(self.now()) => return Ok(issued),
                    Some(Err(failure)) => return Err(failure.at(self.now(), caller.at_terminal)),
                    Some(Ok(_)) | None => {} // so late that it is over, or given up: decide again
                }
            }
        };
        let settled = timeout(limit, settled).await;
        let now = self.now();
        let outcome = settled.unwrap_or_else(|_| {
            let pending = waiter.map_or(Pending::Queued(None), |waiter| waiter.flight().pending(now));
            Err(CacheError::Pending(pending).into())
        });
        // Another run may have brought one, or a step of the clock have made it valid again.
        let held = || entry.cell.borrow().valid(now).map(|current| Arc::clone(&current.issued));
        outcome.or_else(|failed| if may_fail { Err(failed) } else { held().ok_or(failed) })
    }

    /// The entry of `spec`, made if there is none. It stays in the map while the caller holds it.
    fn enter(&self, spec: PluginSpec) -> Result<Interest, Failed> {
        let limit = self.inner.parts.entries;
        let interest = self.lock().enter(spec, limit, self.now());
        self.inner.occupied.notify_one();
        let full = Failed { error: CacheError::Full { limit }, retry_after: policy::EVICTABLE_AFTER };
        interest.ok_or(full)
    }

    /// Keys in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn now(&self) -> Now {
        self.inner.parts.clock.now()
    }

    /// The maps agree at every moment, so a panic elsewhere does not make them useless.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.inner.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> fmt::Debug for CacheParts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheParts").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
