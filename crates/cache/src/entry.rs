//! The entry of one key.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::watch;

use super::{
    bounds::Share,
    rejection::Callers,
    run::Run,
    state::{KeyState, NextAction, Usage, next_action},
};
use credbroker_credential::{Issued, Now};
use credbroker_observe::metrics::{Metrics, ProviderMetrics};
use credbroker_plugin::PluginSpec;

/// The entry of one key.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub spec: Arc<PluginSpec>,
    pub cell: watch::Sender<KeyState>,
    pub callers: Callers,
    /// What it counts in the bounds of the cache.
    pub share: Share,
    /// Open watches.
    pub watchers: AtomicUsize,
    /// Microseconds that the plugin of the last credential ran.
    pub run_micros: AtomicU64,
    /// The counts of its provider, once they are needed.
    counts: OnceLock<Arc<ProviderMetrics>>,
    /// Runs that were started.
    pub runs: AtomicU64,
}

impl KeyEntry {
    /// An entry without a credential, which `peer` asked for at `now`.
    pub(crate) fn new(spec: PluginSpec, peer: u64, now: Now) -> Self {
        Self {
            cell: watch::Sender::new(KeyState::of(&spec)),
            share: Share::new(&spec, peer, now),
            spec: Arc::new(spec),
            callers: Callers::default(),
            watchers: AtomicUsize::default(),
            run_micros: AtomicU64::default(),
            counts: OnceLock::new(),
            runs: AtomicU64::default(),
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

    /// Its run, if that is queued and no caller waits for it.
    pub(crate) fn queued_in_background(&self) -> Option<Arc<Run>> {
        self.cell.borrow().run.clone().filter(|run| run.is_background())
    }

    /// The credential, if it may be served at `now`.
    pub(crate) fn valid(&self, now: Now) -> Option<Arc<Issued>> {
        self.cell.borrow().valid(now).map(|current| Arc::clone(&current.issued))
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
        self.clear(|_| true, Run::detach);
    }

    /// Forgets everything because the provider was retired. The run in flight ends, and its callers and the watches get
    /// the reason.
    pub(crate) fn retire(&self) {
        self.clear(|_| true, |run| run.abandoned.cancel());
    }

    /// Forgets everything if the credential came out of the terminal of a caller, or a run in one is in flight, which ends.
    pub(crate) fn forget_leased(&self) {
        let is_lent = |run: &Arc<Run>| run.attendance.lender().is_some();
        let is_leased = |state: &KeyState| state.is_leased || state.run.as_ref().is_some_and(is_lent);
        self.clear(is_leased, |run| run.abandoned.cancel());
    }

    /// Forgets everything if `is_wanted`, and does `end` to the run in flight.
    fn clear(&self, is_wanted: impl FnOnce(&KeyState) -> bool, end: impl FnOnce(&Run)) {
        let mut run = None;
        self.cell.send_if_modified(|state| {
            let is_wanted = is_wanted(state);
            if is_wanted {
                run = state.clear();
            }
            is_wanted
        });
        run.as_deref().map(end);
    }
}
