//! The credentials in memory: one entry per key, at most one run at a time for each, refreshed ahead of expiry.
//!
//! Everything that the rest of the broker may call is in this file; the other files of the module implement it.

mod account;
mod attendant;
mod attention;
mod caller;
mod claim;
mod entries;
mod entry;
mod error;
mod flight;
mod get;
mod maintenance;
mod makers;
mod manage;
mod outcome;
mod outlook;
mod overview;
mod policy;
mod rejection;
mod report;
mod selector;
#[cfg(test)]
mod simulation;
mod state;
mod summary;
mod suspicion;
#[cfg(test)]
mod tests;
mod waiting;
mod watching;

use std::{
    fmt,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::{Beat, Clock, Now},
    credential::{Cluster, EncodeFn, Issued},
    exec::{Lender, PluginRunner, Scheduler},
    metrics::Metrics,
    plugin::{PluginKey, PluginSpec, ProfileName, Session, Target},
};
use attention::Asker;
use entries::KeyEntries;
use entry::{Interest, KeyEntry};
use get::FirstStep;
use waiting::WaitingPlaces;

pub use attendant::{Attendant, AttendantReader};
pub use attention::Unattended;
pub use caller::Caller;
pub use entries::ListPosition;
pub use error::{CacheError, Failed, Pending, Room};
pub use makers::EntryLimits;
pub use outlook::RunCause;
pub use overview::{Holding, KeyStatus, RejectionStatus};
pub use report::{ReportOutcome, Reported};
pub use selector::{InvalidKey, KeyPrefix, Selector};
pub use summary::ProviderSummary;
pub use suspicion::VerifyFn;
pub use watching::CredentialWatch;

/// Serves credentials from memory and runs plugins for those that are missing or due. Clones share the memory.
#[derive(Debug)]
pub struct CredentialCache<R> {
    inner: Arc<Inner<R>>,
}

impl<R> Clone for CredentialCache<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// Called at the end of each run that started, with what it issued or why it failed, and how long it took. `None`: it was
/// ended because it was not needed.
pub type RunEndFn = Arc<dyn Fn(&PluginSpec, Result<&Issued, Option<&CacheError>>, Duration) + Send + Sync>;

/// The parts of a cache.
pub struct CacheParts<R> {
    /// Runs plugins.
    pub runner: R,
    /// Decides when they run.
    pub scheduler: Scheduler,
    /// Encodes a credential once, when it arrives.
    pub encode: EncodeFn,
    /// Asks API servers about credentials that seem to be rejected.
    pub verify: VerifyFn,
    /// Counts requests and runs.
    pub metrics: Arc<Metrics>,
    /// Called at the end of each run.
    pub on_run: RunEndFn,
    /// Reads the time.
    pub clock: Arc<dyn Clock>,
    /// Uniform in [0, 1): spreads refreshes and retries.
    pub jitter: fn() -> f64,
    /// Identifies this start of the broker in every generation.
    pub epoch: Arc<str>,
    /// How many keys there may be, until [`CredentialCache::set_limits`].
    pub entries: EntryLimits,
    /// Owns the runs.
    pub tasks: TaskTracker,
    /// When cancelled, no more runs start and the current ones are ended.
    pub draining: CancellationToken,
}

#[derive(Debug)]
struct Inner<R> {
    parts: CacheParts<R>,
    entries: Mutex<KeyEntries>,
    /// Wakes the maintenance when the first entry is made.
    occupied: Notify,
    generations: AtomicU64,
    waiting: WaitingPlaces,
}

/// Who asks for a credential, and under which conditions.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// How long the caller waits; `None`: it set no deadline.
    pub deadline: Option<Duration>,
    /// The API server to ask whether it accepts the credential; `None`: the broker cannot ask one.
    pub verify_at: Option<Arc<Cluster>>,
    /// Attends the runs that the caller waits for; `None`: the caller does not attend them.
    pub attendant: Option<Arc<Attendant>>,
    /// The session of the person who asks. A run that the request starts has it, and the caller attends that run.
    pub session: Option<Arc<Session>>,
    /// The caller can run the plugin in its own terminal.
    pub lender: Option<Arc<Lender>>,
    /// A person asks for a run, also if there is a valid credential.
    pub is_login: bool,
}

impl Request {
    fn asker(&self) -> Asker {
        // A lender that has taken an offer is one no longer.
        let lends = self.lender.as_ref().is_some_and(|lender| lender.is_free());
        match (self.is_login, self.caller.at_terminal) {
            (true, _) => Asker::Login { lends },
            (false, true) => Asker::Person { lends },
            (false, false) => Asker::Program,
        }
    }
}

/// The result of a lookup in memory.
#[derive(Debug)]
pub enum Lookup {
    /// A valid credential.
    Served(Arc<Issued>),
    /// There is none, or the caller already has it: call [`CredentialCache::get`].
    Undecided,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// An empty cache.
    pub fn new(parts: CacheParts<R>) -> Self {
        let inner = Inner {
            entries: Mutex::new(KeyEntries::new(parts.entries)),
            parts,
            occupied: Notify::new(),
            generations: AtomicU64::new(1),
            waiting: WaitingPlaces::new(waiting::LIMIT),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the credential of `key` from memory if it is valid and `caller` does not have it yet. Never waits.
    pub fn lookup(&self, key: &PluginKey, caller: &Caller) -> Lookup {
        let now = self.now();
        let entry = self.lock().find(key).map(Arc::clone);
        entry.map_or(Lookup::Undecided, |entry| {
            entry.touch(now);
            self.serve_from_memory(&entry, caller, now).map_or(Lookup::Undecided, Lookup::Served)
        })
    }

    /// Returns the credential of `spec`: from memory while it is valid, otherwise from one plugin run that all callers
    /// share.
    ///
    /// A caller that asks again for the generation that it has, before that is due, may have seen it rejected; see
    /// [`Request::verify_at`].
    ///
    /// Dropping the future does not stop a run that it started: the run belongs to the cache, and others may wait for it.
    ///
    /// # Errors
    ///
    /// [`Failed`] has the cause and how long the failure is held.
    pub async fn get(&self, spec: PluginSpec, request: &Request) -> Result<Arc<Issued>, Failed> {
        let interest = self.enter(spec, Some(request.caller.peer))?;
        let (entry, caller) = (&interest.0, &request.caller);
        let now = self.now();
        let served = if request.is_login { None } else { self.serve_from_memory(entry, caller, now) };
        if let Some(issued) = served {
            return Ok(issued);
        }
        let repeated = entry.cell.borrow().valid(now).map(|current| Arc::clone(&current.issued));
        let answer = match repeated {
            _ if request.is_login => {
                self.get_or_run(entry, request, ready(FirstStep::Run { may_fail: true })).await
            }
            Some(issued) => self.get_or_run(entry, request, self.suspect(entry, issued, request)).await,
            None => self.get_or_run(entry, request, ready(FirstStep::Decide)).await,
        };
        self.count(entry, answer.is_ok(), now);
        let issued = answer?;
        entry.callers.repeats(caller.name, issued.generation.number(), self.now().boot);
        Ok(issued)
    }

    /// Watches the credential of `spec`, and keeps it refreshed while the watch is open.
    ///
    /// # Errors
    ///
    /// There is no room for another key.
    pub fn watch(&self, spec: PluginSpec, caller: Caller) -> Result<CredentialWatch<R>, Failed> {
        Ok(CredentialWatch::new(self.clone(), self.enter(spec, Some(caller.peer))?, caller))
    }

    /// Fetches the credential of `spec` before a caller asks for it, as background work.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn fetch_ahead(&self, spec: PluginSpec) -> Result<(), Failed> {
        self.run_ahead(&self.enter(spec, None)?.0).await
    }

    /// Returns what to use instead of `generation`, which an API server rejected: the current generation if it is
    /// another one, otherwise the outcome of one run that all reports share. [`Reported::outcome`] says which.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). The rejected credential stays in memory for callers that did not report it.
    pub async fn report(
        &self,
        spec: PluginSpec,
        generation: &str,
        request: &Request,
    ) -> Result<Reported, Failed> {
        let (interest, asked) = (self.enter(spec, Some(request.caller.peer))?, self.now());
        let answer = self.answer_report(&interest.0, generation, request).await;
        self.count(&interest.0, answer.is_ok(), asked);
        answer
    }

    /// Runs the plugin of every selected key now, waits for the outcomes, and returns the number of keys. The old
    /// credentials are served meanwhile, and stay if a run fails.
    ///
    /// The first run of each issuer starts even while the issuer is paused; the others are background work.
    pub async fn refresh(&self, selector: &Selector) -> usize {
        self.run_now(selector).await
    }

    /// Forgets the selected keys and returns their number. Secrets are wiped when the last response that holds them has
    /// been sent. Open watches receive the next credential.
    ///
    /// The outcome of a run that started before goes only to the callers that wait for it: the run may have started as
    /// another account.
    pub fn evict(&self, selector: &Selector) -> usize {
        self.take_out(selector)
    }

    /// Forgets the credentials of `profile`, except those for its current target `now`: the profile changed or was
    /// deleted. Callers that wait for a run still get its outcome, for the target that they asked for; a run without
    /// callers is ended.
    pub fn forget(&self, profile: &ProfileName, now: Option<&Arc<Target>>) {
        self.forget_profile(profile, now);
    }

    /// Forgets the credentials of providers that are no longer in force, and returns their number. Their runs end, and
    /// callers that wait or watch get [`CacheError::Retired`].
    pub fn forget_retired(&self) -> usize {
        self.take_retired()
    }

    /// Sets how many keys there may be. If more are held, they stay until they are idle.
    pub fn set_limits(&self, entries: EntryLimits) {
        self.lock().limits = entries;
    }

    /// Returns at most `count` of the selected keys, without their credentials, in the order of provider and key,
    /// starting after `after`.
    pub fn list(&self, selector: &Selector, after: Option<&ListPosition>, count: usize) -> Vec<KeyStatus> {
        let entries = self.lock().select(selector, after, count);
        let now = self.now();
        entries.iter().map(|entry| self.status_of(entry, now)).collect()
    }

    /// Returns the state of each key of a ClusterProfile, and why it has no credential.
    pub fn profile_states(&self) -> Vec<(ProfileName, Holding, Option<Failed>)> {
        let entries: Vec<_> = self.lock().profiles().flatten().cloned().collect();
        let now = self.now();
        entries.iter().filter_map(|entry| self.profile_state(entry, now)).collect()
    }

    /// Refreshes credentials ahead of their expiry, forgets idle keys, and starts the queued runs whose time has come,
    /// until the broker drains.
    pub async fn keep_fresh(&self, beat: Beat) {
        let parts = &self.inner.parts;
        tokio::join!(self.maintain(beat), parts.draining.run_until_cancelled(parts.scheduler.keep_time()));
    }

    /// The number of keys in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of `spec`, made if there is none, for a caller in `process`; `None`: for the broker itself. It stays in
    /// the map while the caller holds it.
    fn enter(&self, spec: PluginSpec, process: Option<u64>) -> Result<Interest, Failed> {
        let standing = spec.provider.standing.clone();
        let (interest, displaced) = {
            let mut entries = self.lock();
            // Checked under the lock: the request may have been resolved before a reload whose keys are forgotten already.
            if let Some(why) = standing.retirement() {
                return Err(CacheError::Retired(why).into());
            }
            let interest = entries.enter(spec, process, self.now());
            (interest, std::mem::take(&mut entries.displaced))
        };
        for entry in displaced {
            entry.forget();
        }
        self.inner.occupied.notify_one();
        interest
            .map_err(|room| Failed { error: CacheError::Full(room), retry_after: policy::EVICTABLE_AFTER })
    }

    /// Counts a credential of `entry` that was returned from memory.
    fn count_served(&self, entry: &KeyEntry) {
        entry.counts(&self.inner.parts.metrics).served(entry.run_micros.load(Ordering::Relaxed));
    }

    /// Counts a request of `entry` that waited from `asked` until now.
    fn count(&self, entry: &KeyEntry, is_success: bool, asked: Now) {
        let waited = self.now().boot.saturating_sub(asked.boot);
        entry.counts(&self.inner.parts.metrics).answered(is_success, waited);
    }

    fn now(&self) -> Now {
        self.inner.parts.clock.now()
    }

    /// The maps are consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, KeyEntries> {
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
