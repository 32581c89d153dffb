//! The entry of one key.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{
    makers::{InUse, Made},
    rejection::{Callers, Verification},
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
    /// Whose variables or cluster select it; `None`: no caller's.
    pub made: Option<Made>,
    /// Who used it first, of those that use it now.
    in_use: Mutex<Option<InUse>>,
    /// The last verification with an API server.
    pub verification: Mutex<Option<Verification>>,
    /// Milliseconds since boot of the last request.
    last_used: AtomicU64,
    /// Open watches.
    pub watchers: AtomicUsize,
    /// Callers that wait, and watches: the entry stays in the map.
    pub interest: AtomicUsize,
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
    pub(crate) fn new(spec: Arc<PluginSpec>, made: Option<Made>, now: Now) -> Self {
        let entry = Self {
            cell: watch::Sender::new(KeyState::of(&spec)),
            spec,
            callers: Callers::default(),
            made,
            in_use: Mutex::default(),
            verification: Mutex::default(),
            last_used: AtomicU64::default(),
            watchers: AtomicUsize::default(),
            interest: AtomicUsize::default(),
            run_micros: AtomicU64::default(),
            counts: OnceLock::new(),
            runs: AtomicU64::default(),
            leaves: AtomicBool::default(),
        };
        entry.touch(now);
        entry
    }

    /// The counts of its provider.
    pub(crate) fn counts(&self, metrics: &Metrics) -> &ProviderMetrics {
        self.counts.get_or_init(|| metrics.providers.of(&self.spec.provider.name))
    }

    /// Notes a request at `now`.
    pub(crate) fn touch(&self, now: Now) {
        self.last_used.store(millis(now), Ordering::Relaxed);
    }

    /// The time since the last request.
    pub(crate) fn idle(&self, now: Now) -> Duration {
        Duration::from_millis(millis(now).saturating_sub(self.last_used.load(Ordering::Relaxed)))
    }

    /// Whether it must stay in the map: callers wait or watch, or a run is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.interest.load(Ordering::Relaxed) > 0 || self.cell.borrow().flight.is_some()
    }

    /// Whether a caller waits or watches.
    pub(crate) fn is_in_use(&self) -> bool {
        self.interest.load(Ordering::Relaxed) > 0
    }

    /// Whether it may be removed for another one at any time: a caller made it, no caller uses it, and its plugin is not
    /// running.
    pub(crate) fn may_give_way(&self) -> bool {
        let is_running = || self.cell.borrow().flight.as_ref().is_some_and(|flight| !flight.is_background());
        self.made.is_some() && !self.is_in_use() && !is_running()
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
            idle: self.idle(now),
            watched: self.is_watched(),
            awaited: self.interest.load(Ordering::Relaxed) > 0,
            file: self.spec.file_version(),
            timeout: self.spec.provider.timeout,
        }
    }

    /// What the maintenance has to do for it.
    pub(crate) fn next_action(&self, now: Now) -> NextAction {
        next_action(&self.cell.borrow(), self.usage(now), now)
    }

    /// Waits until `is_true` for its state.
    pub(crate) async fn becomes(&self, mut is_true: impl FnMut(&KeyState) -> bool) {
        // The entry keeps the sender alive.
        drop(self.cell.subscribe().wait_for(|state| is_true(state)).await.map(|_| ()));
    }

    /// Forgets everything. A run in flight continues only for the callers that wait for it, and its outcome is not kept:
    /// it may have started as another account.
    pub(crate) fn forget(&self) {
        let mut flight = None;
        self.cell.send_modify(|state| flight = state.clear());
        self.forget_verification();
        if let Some(flight) = flight {
            flight.detach();
        }
    }

    /// Forgets everything because the provider was retired. The run in flight ends, and its callers and the watches get
    /// the reason.
    pub(crate) fn retire(&self, why: Retirement) {
        let mut flight = None;
        self.cell.send_modify(|state| {
            flight = state.clear();
            state.retired = Some(why);
        });
        self.forget_verification();
        if let Some(flight) = flight {
            flight.abandoned.cancel();
        }
    }

    /// Forgets everything if the credential came out of the terminal of a caller, or a run in one is in flight, which ends.
    pub(crate) fn forget_leased(&self) {
        let mut flight = None;
        let is_leased = self.cell.send_if_modified(|state| {
            let is_leased = state.is_leased
                || state.flight.as_ref().is_some_and(|flight| flight.attendance.lender().is_some());
            if is_leased {
                flight = state.clear();
            }
            is_leased
        });
        if is_leased {
            self.forget_verification();
        }
        if let Some(flight) = flight {
            flight.abandoned.cancel();
        }
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
        entry.interest.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(entry))
    }

    /// The same for a caller whose use of the entry is counted until no caller uses it.
    pub(crate) fn counted(entry: &Arc<KeyEntry>, in_use: InUse) -> Self {
        let interest = Self::new(entry);
        *entry.lock_use() = Some(in_use);
        interest
    }
}

impl KeyEntry {
    fn lock_use(&self) -> MutexGuard<'_, Option<InUse>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        if self.0.interest.fetch_sub(1, Ordering::Relaxed) == 1 && self.0.made.is_some() {
            let mut in_use = self.0.lock_use();
            // A caller may have come meanwhile, and its use counts.
            if !self.0.is_in_use() {
                *in_use = None;
            }
        }
    }
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.boot.as_millis()).unwrap_or(u64::MAX)
}
