//! The credentials in memory: one cell per key, one run at a time in each, refreshed ahead of expiry.

mod callers;
mod entry;
mod error;
mod overview;
mod policy;
mod rejection;
mod run;
mod state;
#[cfg(test)]
mod tests;
mod watching;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use crate::{
    clock::{Clock, Now},
    credential::Issued,
    exec::PluginRunner,
    plugin::{PluginKey, PluginSpec},
};
use entry::{Entry, Look};
use policy::{Care, Decision, care};

pub use error::{CacheError, Failed};
pub use overview::{Held, Holding};
pub use watching::Watch;

/// How often entries are looked at. Validity is decided by the clocks at each ask; this bounds how late a refresh
/// starts, after a step of the clock and a suspend too.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
#[derive(Debug)]
pub struct CacheParts<R> {
    /// Runs plugins.
    pub runner: R,
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
    entries: Mutex<HashMap<PluginKey, Arc<Entry>>>,
    /// Wakes the periodic look when there is something to look at.
    occupied: Notify,
    generations: AtomicU64,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// An empty cache.
    pub fn new(parts: CacheParts<R>) -> Self {
        let (entries, occupied, generations) = (Mutex::default(), Notify::new(), AtomicU64::new(1));
        Self { inner: Arc::new(Inner { parts, entries, occupied, generations }) }
    }

    /// The credential of `spec`: from memory while it is valid, else from one run that all who ask share.
    ///
    /// `caller` is an opaque name of the process that the credential is for, or empty. A caller that asks again for the
    /// generation that it has, before that is due, is taken to have seen it rejected.
    ///
    /// Dropping the future does not stop a run that it started: it belongs to the cache, and others may wait for it.
    ///
    /// # Errors
    ///
    /// [`Failed`] says what went wrong and for how long the failure is held.
    pub async fn get(&self, spec: PluginSpec, caller: &str) -> Result<Arc<Issued>, Failed> {
        let now = self.now();
        let entry = self.entry(spec, now)?;
        let hit = {
            let state = entry.cell.borrow();
            let fresh = state.current.as_ref().is_some_and(|current| current.is_fresh_at(now));
            match policy::decide(&state, now) {
                Decision::Serve(issued) => Some((issued, fresh)),
                _ => None,
            }
        };
        let rejected = match hit {
            Some((issued, fresh)) if entry.callers.repeats(caller, issued.generation.number()) && fresh => {
                Some(issued.generation.to_string())
            }
            Some((issued, _)) => return Ok(issued),
            None => None,
        };
        let issued = self.settle(&entry, rejected.as_deref()).await?;
        entry.callers.repeats(caller, issued.generation.number());
        Ok(issued)
    }

    /// What to use instead of `generation`, which an API server refused: a newer one if there is one, else the outcome
    /// of one run, shared by all who report. Where a run is not worth it (the generation is seconds old, or the last
    /// such run was a short time ago) the same one is returned.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). The old credential stays for those who did not report it.
    pub async fn report(&self, spec: PluginSpec, generation: &str) -> Result<Arc<Issued>, Failed> {
        let entry = self.entry(spec, self.now())?;
        self.settle(&entry, Some(generation)).await
    }

    /// Follows the credential of `spec`, and keeps it refreshed.
    ///
    /// # Errors
    ///
    /// There is no room for another key.
    pub fn watch(&self, spec: PluginSpec) -> Result<Watch<R>, Failed> {
        Ok(Watch::new(self.clone(), self.entry(spec, self.now())?))
    }

    /// Serves, waits or fails, as often as it takes.
    async fn settle(&self, entry: &Arc<Entry>, mut rejected: Option<&str>) -> Result<Arc<Issued>, Failed> {
        let _waits = entry.cell.subscribe(); // from before the look: a run that somebody waits for is not abandoned
        loop {
            let now = self.now();
            let Look { decision, finished, claim } = match rejected.take() {
                Some(generation) => entry.look_rejected(generation, now),
                None => entry.look(now),
            };
            if let Some(claim) = claim {
                self.start(claim);
            }
            match decision {
                Decision::Serve(issued) | Decision::ServeAndRefresh(issued) => return Ok(issued),
                Decision::Fail(failed) => return Err(failed),
                Decision::Wait => {}
            }
            match entry.next_outcome(finished).await {
                Ok(issued) if issued.is_valid_at(self.now()) => return Ok(issued),
                Err(Some(failure)) => return Err(failure.at(self.now())),
                Ok(_) | Err(None) => {} // so late that it is over: ask again
            }
        }
    }

    /// Looks at every entry once a second while there are any: starts the refreshes that are due and forgets what is
    /// idle. Ends when the broker drains.
    pub async fn keep_fresh(&self) {
        loop {
            let empty = self.lock().is_empty();
            let wake = async {
                if empty {
                    self.inner.occupied.notified().await;
                } else {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            };
            tokio::select! {
                () = self.inner.parts.draining.cancelled() => return,
                () = wake => self.look_after(),
            }
        }
    }

    fn look_after(&self) {
        let now = self.now();
        let mut due = Vec::new();
        let care = |entry: &Entry| care(&entry.cell.borrow(), entry.idle(now), entry.is_watched(), now);
        self.lock().retain(|key, entry| match care(entry) {
            Care::Keep => true,
            Care::Refresh => {
                due.push(Arc::clone(entry));
                true
            }
            Care::Drop => {
                debug!(provider = %entry.spec.provider.name, %key, "idle credential forgotten");
                false
            }
        });
        for claim in due.into_iter().filter_map(|entry| entry.look(now).claim) {
            self.start(claim);
        }
    }

    /// The cell of `spec`, made if there is none.
    fn entry(&self, spec: PluginSpec, now: Now) -> Result<Arc<Entry>, Failed> {
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&spec.key) {
            entry.touch(now); // under the lock: an entry that is asked for is not forgotten
            return Ok(Arc::clone(entry));
        }
        let limit = self.inner.parts.entries;
        if entries.len() >= limit {
            let idlest = entries
                .iter()
                .filter(|(_, entry)| entry.idle(now) >= policy::EVICTABLE_AFTER && !entry.is_busy())
                .max_by_key(|(_, entry)| entry.idle(now))
                .map(|(key, _)| *key);
            let Some(idlest) = idlest else {
                return Err(Failed {
                    error: CacheError::Full { limit },
                    retry_after: policy::EVICTABLE_AFTER,
                });
            };
            entries.remove(&idlest);
        }
        let entry = Arc::new(Entry::new(Arc::new(spec), now));
        entries.insert(entry.spec.key, Arc::clone(&entry));
        self.inner.occupied.notify_one();
        Ok(entry)
    }

    /// Keys in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing is in memory.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn now(&self) -> Now {
        self.inner.parts.clock.now()
    }

    /// The map is whole at every moment, so a panic elsewhere does not make it useless.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PluginKey, Arc<Entry>>> {
        self.inner.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
