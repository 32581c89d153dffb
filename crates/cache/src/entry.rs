//! The entry of one key.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::watch;

use super::{
    bounds::{Bounds, Share},
    rejection::{Callers, Verification},
    run::Run,
    state::{KeyState, NextAction, Usage, next_action},
};
use credbroker_credential::Now;
use credbroker_observe::metrics::{Metrics, ProviderMetrics};
use credbroker_plugin::{PluginSpec, Retirement};

/// The entry of one key.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub spec: Arc<PluginSpec>,
    pub cell: watch::Sender<KeyState>,
    pub callers: Callers,
    /// What it counts in the bounds of the cache.
    pub share: Share,
    bounds: Arc<Mutex<Bounds>>,
    /// The last verification with an API server.
    pub verification: Mutex<Option<Verification>>,
    /// Open watches.
    pub watchers: AtomicUsize,
    /// Microseconds that the plugin of the last credential ran.
    pub run_micros: AtomicU64,
    /// The counts of its provider; set when they are first needed.
    counts: OnceLock<Arc<ProviderMetrics>>,
    /// Runs that were started.
    pub runs: AtomicU64,
    /// It is being removed from the map, or is no longer in it.
    pub leaves: AtomicBool,
}

impl KeyEntry {
    pub(crate) fn new(spec: PluginSpec, share: Share, bounds: &Arc<Mutex<Bounds>>) -> Self {
        Self {
            cell: watch::Sender::new(KeyState::of(&spec)),
            spec: Arc::new(spec),
            callers: Callers::default(),
            share,
            bounds: Arc::clone(bounds),
            verification: Mutex::default(),
            watchers: AtomicUsize::default(),
            run_micros: AtomicU64::default(),
            counts: OnceLock::new(),
            runs: AtomicU64::default(),
            leaves: AtomicBool::default(),
        }
    }

    /// The counts of its provider.
    pub(crate) fn counts(&self, metrics: &Metrics) -> &ProviderMetrics {
        self.counts.get_or_init(|| metrics.providers.of(&self.spec.provider.name))
    }

    /// Whether its plugin is running, or a caller waits for the run.
    pub(crate) fn is_running(&self) -> bool {
        self.cell.borrow().run.as_ref().is_some_and(|run| !run.is_background())
    }

    /// Counts the bytes of its credential, which has changed. Returns whether a bound of the cache is exceeded.
    pub(crate) fn resize(&self) -> bool {
        let mut bounds = lock(&self.bounds);
        let bytes = self.cell.borrow().current.as_ref().map_or(0, |held| held.issued.encoded.frame.len());
        bounds.resize(&self.share, bytes)
    }

    /// Whether there are open watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Whether it has a credential that has expired.
    pub(crate) fn has_expired(&self, now: Now) -> bool {
        let state = self.cell.borrow();
        state.current.is_some() && state.valid(now).is_none()
    }

    /// How it is used.
    pub(crate) fn usage(&self, now: Now) -> Usage {
        Usage {
            idle: self.share.idle(now),
            watched: self.is_watched(),
            awaited: self.share.is_in_use(),
            file: self.spec.file_version(),
            timeout: self.spec.provider.timeout,
            uid: self.share.last_uid(),
        }
    }

    /// What the maintenance has to do for it.
    pub(crate) fn next_action(&self, now: Now) -> NextAction {
        next_action(&self.cell.borrow(), self.usage(now), now)
    }

    /// Changes its state without waking the watches.
    pub(crate) fn update<T: Default>(&self, change: impl FnOnce(&mut KeyState) -> T) -> T {
        let mut result = T::default();
        self.cell.send_if_modified(|state| {
            result = change(state);
            false
        });
        result
    }

    /// Waits until `is_true` for its state.
    pub(crate) async fn becomes(&self, mut is_true: impl FnMut(&KeyState) -> bool) {
        // The entry keeps the sender alive.
        drop(self.cell.subscribe().wait_for(|state| is_true(state)).await.map(|_| ()));
    }

    /// Forgets everything. A run in flight continues only for the callers that wait for it, and its outcome is not kept:
    /// it may have started as another account.
    pub(crate) fn forget(&self) {
        if let Some(run) = self.clear(|_| true) {
            run.detach();
        }
    }

    /// Forgets everything because the provider was retired. The run in flight ends, and its callers and the watches get
    /// the reason.
    pub(crate) fn retire(&self, why: Retirement) {
        let run = self.clear(|state| {
            state.retired = Some(why);
            true
        });
        if let Some(run) = run {
            run.abandoned.cancel();
        }
    }

    /// Forgets everything if the credential came out of the terminal of a caller, or a run in one is in flight, which ends.
    pub(crate) fn forget_leased(&self) {
        let is_lent = |run: &Arc<Run>| run.attendance.lender().is_some();
        if let Some(run) = self.clear(|state| state.is_leased || state.run.as_ref().is_some_and(is_lent)) {
            run.abandoned.cancel();
        }
    }

    /// Forgets everything if `is_wanted`, and returns the run in flight.
    fn clear(&self, is_wanted: impl FnOnce(&mut KeyState) -> bool) -> Option<Arc<Run>> {
        let mut run = None;
        let is_cleared = self.cell.send_if_modified(|state| {
            let is_wanted = is_wanted(state);
            if is_wanted {
                run = state.clear();
            }
            is_wanted
        });
        if is_cleared {
            self.forget_verification();
            self.resize();
        }
        run
    }

    /// Forgets the last verification: while it is in progress, it holds the credential.
    pub(crate) fn forget_verification(&self) {
        *self.verification.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Keeps an entry in the map while a caller waits or watches.
#[derive(Debug)]
pub(crate) struct Interest(pub Arc<KeyEntry>);

impl Interest {
    /// Must be called under the lock of the map that `entry` is in, so that it is not removed meanwhile.
    pub(crate) fn new(entry: &Arc<KeyEntry>) -> Self {
        lock(&entry.bounds).enter(entry.spec.key, &entry.share);
        Self(Arc::clone(entry))
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        lock(&self.0.bounds).leave(self.0.spec.key, &self.0.share);
    }
}

/// The counts are consistent whenever the lock is free, so a poisoned lock is still usable.
pub(crate) fn lock(bounds: &Mutex<Bounds>) -> MutexGuard<'_, Bounds> {
    bounds.lock().unwrap_or_else(PoisonError::into_inner)
}
