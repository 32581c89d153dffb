//! What all clones of a cache share.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use super::{
    CacheError, CacheParts, CredentialCache, Failed,
    entries::KeyEntries,
    entry::{Interest, KeyEntry},
    policy,
    waiting::{self, WaitingPlaces},
};
use credbroker_observe::clock::Now;
use credbroker_plugin::PluginSpec;
use credbroker_runner::PluginRunner;

#[derive(Debug)]
pub(super) struct Inner<R> {
    pub(super) parts: CacheParts<R>,
    pub(super) entries: Mutex<KeyEntries>,
    /// Wakes the maintenance when the first entry is made.
    pub(super) occupied: Notify,
    pub(super) generations: AtomicU64,
    /// Increases with each change of what the cache holds.
    pub(super) changes: AtomicU64,
    pub(super) waiting: WaitingPlaces,
}

impl<R> Inner<R> {
    pub(super) fn new(parts: CacheParts<R>) -> Self {
        Self {
            entries: Mutex::new(KeyEntries::new(parts.entries)),
            parts,
            occupied: Notify::new(),
            generations: AtomicU64::new(1),
            changes: AtomicU64::default(),
            waiting: WaitingPlaces::new(waiting::LIMIT),
        }
    }
}

impl<R: PluginRunner> CredentialCache<R> {
    /// The entry of `spec`, made if there is none, for a caller in `process`; `None`: for the broker itself. It stays in
    /// the map while the caller holds it.
    pub(super) fn enter(&self, spec: PluginSpec, process: Option<u64>) -> Result<Interest, Failed> {
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
        if !displaced.is_empty() {
            self.changed();
        }
        for entry in displaced {
            entry.forget();
        }
        self.inner.occupied.notify_one();
        interest
            .map_err(|room| Failed { error: CacheError::Full(room), retry_after: policy::EVICTABLE_AFTER })
    }

    /// What an entry holds changes, or an entry was removed. Called before another task can see it, so that a reader of the
    /// number that sees the change sees the number too.
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

    /// The maps are consistent whenever the lock is free, so a poisoned lock is still usable.
    pub(super) fn lock(&self) -> MutexGuard<'_, KeyEntries> {
        self.inner.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
