//! The cache, what it is made of, and what its clones share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    entries::{EVICTABLE_AFTER, EntryLimits, Interest, KeyEntries, lock, position},
    entry::KeyEntry,
    error::{CacheError, Failed},
    rejection::VerifyFn,
};
use credbroker_credential::{EncodeFn, Issued};
use credbroker_observe::{
    clock::{Clock, Now},
    metrics::Metrics,
};
use credbroker_plugin::{Identities, IdentityFiles, PluginSpec};
use credbroker_runner::{PluginRunner, Scheduler, judge};

/// Entries that are handled before other tasks run.
pub(super) const AT_A_TIME: usize = 256;

/// Called after each run that started: what it issued or why it failed (`None`: it was not needed), and how long it took.
pub type RunEndFn = Arc<dyn Fn(&PluginSpec, Result<&Issued, Option<&CacheError>>, Duration) + Send + Sync>;

/// The parts of a cache.
#[derive(derive_more::Debug)]
#[debug("CacheParts({entries:?})")]
pub struct CacheParts<R> {
    /// Runs plugins.
    pub runner: Arc<R>,
    /// Decides when they run.
    pub scheduler: Scheduler,
    /// Encodes a credential once, when it arrives.
    pub encode: EncodeFn,
    /// Asks API servers about credentials that seem to be rejected.
    pub verify: VerifyFn,
    /// Counts requests and runs.
    pub metrics: Arc<Metrics>,
    /// Called after each run.
    pub on_run: RunEndFn,
    /// Reads the time.
    pub clock: Arc<dyn Clock>,
    /// Uniform in [0, 1): spreads refreshes and retries.
    pub jitter: fn() -> f64,
    /// Identifies this start of the broker in every generation.
    pub epoch: Arc<str>,
    /// How much there may be, until [`CredentialCache::set_limits`].
    pub entries: EntryLimits,
    /// Owns the runs.
    pub tasks: TaskTracker,
    /// When cancelled, no more runs start and the current ones are ended.
    pub draining: CancellationToken,
}

/// Serves credentials from memory and runs plugins for those that are missing or due. Clones share the memory.
#[derive(Debug)]
pub struct CredentialCache<R> {
    pub(super) inner: Arc<Inner<R>>,
}

#[derive(Debug)]
pub(super) struct Inner<R> {
    pub(super) parts: CacheParts<R>,
    entries: Arc<Mutex<KeyEntries>>,
    /// Wakes the maintenance when the first entry is made.
    pub(super) occupied: Notify,
    pub(super) generations: AtomicU64,
    changes: AtomicU64,
}

impl<R> Clone for CredentialCache<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: PluginRunner> CredentialCache<R> {
    /// An empty cache.
    pub fn new(parts: CacheParts<R>) -> Self {
        let inner = Inner {
            entries: Arc::new(Mutex::new(KeyEntries::new(parts.entries))),
            parts,
            occupied: Notify::new(),
            generations: AtomicU64::new(1),
            changes: AtomicU64::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets how much there may be. What is held beyond that stays until it is idle.
    pub fn set_limits(&self, limits: EntryLimits) {
        self.change(|entries, now| entries.set_limits(limits, now));
    }

    /// A number that increases with each change of [`profile_states`](Self::profile_states) that time alone does not cause.
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Acquire)
    }

    /// The number of keys in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the broker drains: no more runs start.
    pub fn is_draining(&self) -> bool {
        self.inner.parts.draining.is_cancelled()
    }

    /// The entry of `spec`, made if there is none, for a caller in `peer`. It stays in the map while the caller holds it.
    pub(super) fn enter(&self, spec: PluginSpec, peer: u64) -> Result<Interest, Failed> {
        let entered = self.change(|entries, now| {
            // Under the lock: the request may have been resolved before a reload whose keys are forgotten already.
            if let Some(why) = spec.provider.state.retirement() {
                return Err(CacheError::Retired(why).into());
            }
            let full = |full| Failed { retry_after: EVICTABLE_AFTER, ..CacheError::Full(full).into() };
            entries.enter(spec, peer, now).map_err(full)
        });
        self.inner.occupied.notify_one();
        entered.map(|entry| self.interest(entry))
    }

    pub(super) fn interest(&self, entry: Arc<KeyEntry>) -> Interest {
        Interest { entry, entries: Arc::clone(&self.inner.entries) }
    }

    /// The files that select the accounts of the credentials.
    pub fn identities(&self) -> Arc<Identities> {
        Arc::clone(&self.lock().identities)
    }

    /// Reads `files`, and returns the version of the account that they select, if it is certain.
    pub async fn judge(&self, files: &Arc<IdentityFiles>) -> Option<u64> {
        judge(files, &self.inner.parts.clock, |_| true).await
    }

    /// Reads the files that select the account of `entry` if they may have changed, and forgets what is of another account.
    pub(super) async fn settle(&self, entry: &KeyEntry) {
        if let Some(files) = &entry.identity {
            if files.is_unsettled() {
                judge(files, &self.inner.parts.clock, IdentityFiles::is_unsettled).await;
            }
            self.follow_account(entry);
        }
    }

    /// Forgets what `entry` holds if that is of another account than its files select.
    pub(super) fn follow_account(&self, entry: &KeyEntry) {
        if entry.follow_account() {
            self.changed();
            self.resized(entry);
        }
    }

    /// The credential of `entry` has changed, and with it the room that is left.
    pub(super) fn resized(&self, entry: &KeyEntry) {
        self.change(|entries, now| entries.resize(entry, now));
    }

    /// Does `change` under the lock, and forgets the entries that give way.
    fn change<T>(&self, change: impl FnOnce(&mut KeyEntries, Now) -> T) -> T {
        let mut entries = self.lock();
        let result = change(&mut entries, self.now());
        let displaced = std::mem::take(&mut entries.displaced);
        drop(entries);
        if !displaced.is_empty() {
            self.changed();
        }
        for entry in displaced {
            entry.forget();
        }
        result
    }

    /// Visits the entries of the provider `name` or of all, and lets other tasks run between a few of them.
    pub(super) async fn visit(&self, name: Option<&str>, mut visit: impl FnMut(&Arc<KeyEntry>, Now) + Send) {
        let mut last = None;
        loop {
            let entries = self.lock().after(name, last.as_ref(), AT_A_TIME);
            let Some(end) = entries.last() else { return };
            last = Some(position(&end.spec));
            let now = self.now();
            for entry in &entries {
                visit(entry, now);
            }
            tokio::task::yield_now().await;
        }
    }

    /// What an entry holds changes, or an entry was removed. Called before another task can see that.
    pub(super) fn changed(&self) {
        self.inner.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a credential of `entry` that was returned from memory.
    pub(super) fn count_served(&self, entry: &KeyEntry) {
        entry.counts(&self.inner.parts.metrics).served(entry.run_micros.load(Ordering::Relaxed));
    }

    /// Counts a request of `entry` that waited from `asked` until now.
    pub(super) fn count(&self, entry: &KeyEntry, is_success: bool, asked: Now) {
        let waited = self.now().boot.saturating_sub(asked.boot);
        entry.counts(&self.inner.parts.metrics).answered(is_success, waited);
    }

    pub(super) fn now(&self) -> Now {
        self.inner.parts.clock.now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, KeyEntries> {
        lock(&self.inner.entries)
    }
}
