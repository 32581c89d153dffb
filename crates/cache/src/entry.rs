//! The entry of one key.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{
    rejection::{Caller, Callers},
    run::Run,
    state::{KeyState, NextAction, Usage, next_action},
};
use credbroker_credential::{Issued, Now};
use credbroker_observe::metrics::{Metrics, ProviderMetrics};
use credbroker_plugin::{IdentityFiles, PluginSpec};

/// Whose an entry is: a uid's, or the broker's (`None`).
pub(crate) type Party = Option<u32>;

pub(crate) const NOT_LISTED: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub spec: Arc<PluginSpec>,
    /// The files that select its account, if any are known.
    pub identity: Option<Arc<IdentityFiles>>,
    pub cell: watch::Sender<KeyState>,
    pub callers: Callers,
    pub party: Party,
    /// Bytes of the variables and the cluster that select it, if they are a caller's.
    sent: usize,
    /// Bytes of its credential. This and the next three change under the lock of the map only.
    pub credential: AtomicUsize,
    /// Callers that wait for it, and watches.
    pub uses: AtomicUsize,
    /// The time of the last request when it was listed as idle, or [`NOT_LISTED`].
    pub listed: AtomicU64,
    pub is_in_map: AtomicBool,
    /// Milliseconds since boot of the last request.
    pub last_used: AtomicU64,
    /// The last caller, or [`Caller::BROKER`].
    last_peer: AtomicU64,
    pub watchers: AtomicUsize,
    /// Microseconds that the plugin of the last credential ran.
    pub run_micros: AtomicU64,
    /// The counts of its provider, once they are needed.
    counts: OnceLock<Arc<ProviderMetrics>>,
    pub runs: AtomicU64,
}

impl KeyEntry {
    /// An entry without a credential, which `peer` asked for at `now`.
    pub(crate) fn new(spec: PluginSpec, peer: u64, now: Now) -> Self {
        let sent = sent_bytes(&spec).filter(|_| peer != Caller::BROKER);
        Self {
            cell: watch::Sender::new(KeyState::of(&spec)),
            spec: Arc::new(spec),
            identity: None,
            callers: Callers::default(),
            party: sent.map(|_| uid(peer)),
            sent: sent.unwrap_or_default(),
            credential: AtomicUsize::default(),
            uses: AtomicUsize::default(),
            listed: AtomicU64::new(NOT_LISTED),
            is_in_map: AtomicBool::default(),
            last_used: AtomicU64::new(millis(now.boot)),
            last_peer: AtomicU64::new(peer),
            watchers: AtomicUsize::default(),
            run_micros: AtomicU64::default(),
            counts: OnceLock::new(),
            runs: AtomicU64::default(),
        }
    }

    pub(crate) fn counts(&self, metrics: &Metrics) -> &ProviderMetrics {
        self.counts.get_or_init(|| metrics.providers.of(&self.spec.provider.name))
    }

    pub(crate) fn touch(&self, peer: u64, now: Now) {
        self.last_used.store(millis(now.boot), Ordering::Relaxed);
        if peer != Caller::BROKER {
            self.last_peer.store(peer, Ordering::Relaxed);
        }
    }

    pub(crate) fn idle(&self, now: Now) -> Duration {
        Duration::from_millis(millis(now.boot).saturating_sub(self.last_used.load(Ordering::Relaxed)))
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.uses.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_in_map(&self) -> bool {
        self.is_in_map.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.sent + self.credential.load(Ordering::Relaxed)
    }

    /// Whether its plugin is running, or a caller waits for the run.
    pub(crate) fn is_running(&self) -> bool {
        self.cell.borrow().run.as_ref().is_some_and(|run| !run.is_background())
    }

    /// Its run, if that is queued and no caller waits for it.
    pub(crate) fn queued_in_background(&self) -> Option<Arc<Run>> {
        self.cell.borrow().run.clone().filter(|run| run.is_background())
    }

    pub(crate) fn valid(&self, now: Now) -> Option<Arc<Issued>> {
        let state = self.cell.borrow();
        let valid = state.valid(now).filter(|_| state.account == self.account());
        valid.map(|current| Arc::clone(&current.issued))
    }

    /// Which account its files select, as far as they were read.
    pub(crate) fn account(&self) -> u64 {
        self.identity.as_ref().map_or(0, |files| files.version())
    }

    pub(crate) fn usage(&self, now: Now) -> Usage {
        let peer = Some(self.last_peer.load(Ordering::Relaxed)).filter(|peer| *peer != Caller::BROKER);
        Usage {
            idle: self.idle(now),
            watched: self.watchers.load(Ordering::Relaxed) > 0,
            awaited: self.is_in_use(),
            file: self.spec.file.version(),
            timeout: self.spec.provider.timeout,
            uid: peer.map(uid),
        }
    }

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

    pub(crate) async fn becomes(&self, mut is_true: impl FnMut(&KeyState) -> bool) {
        // The entry keeps the sender alive.
        drop(self.cell.subscribe().wait_for(|state| is_true(state)).await.map(|_| ()));
    }

    /// Forgets everything. A run in flight, which may have started as another account, continues only for its callers.
    pub(crate) fn forget(&self) {
        self.clear(|_| true, Run::detach);
    }

    /// As [`Self::forget`]. Watches that have a credential end.
    pub(crate) fn evict(&self) {
        let evicted = |state: &mut KeyState| {
            state.evictions += 1;
            true
        };
        self.clear(evicted, Run::detach);
    }

    /// Forgets everything if its files select another account by now. Returns whether they do.
    pub(crate) fn follow_account(&self) -> bool {
        let account = self.account();
        // Versions only grow, and another task may have read a newer one.
        let is_newer = self.cell.borrow().account < account;
        if is_newer {
            let follow = |state: &mut KeyState| {
                let is_newer = state.account < account;
                state.account = state.account.max(account);
                state.evictions += evictions(state, is_newer);
                is_newer
            };
            self.clear(follow, Run::detach);
        }
        is_newer
    }

    /// Forgets what is of an account before `account`, but not `run`, which starts as that account. Returns whether it did.
    pub(crate) fn starts_as(&self, account: u64, run: &Arc<Run>) -> bool {
        self.cell.send_if_modified(|state| {
            let is_own = state.run.as_ref().is_some_and(|found| Arc::ptr_eq(found, run));
            let is_newer = is_own && state.account < account;
            state.evictions += evictions(state, is_newer);
            if is_newer {
                (state.run, state.account) = (state.clear(), account);
            }
            is_newer
        })
    }

    /// Forgets everything because the provider was retired. The run in flight ends. Callers and watches get the reason.
    pub(crate) fn retire(&self) {
        self.clear(|_| true, |run| run.abandoned.cancel());
    }

    /// Forgets everything if the credential came out of the terminal of a caller, or a run in one is in flight, which ends.
    pub(crate) fn forget_leased(&self) {
        let is_lent = |run: &Arc<Run>| run.attendance.lender.is_some();
        let is_leased = |state: &mut KeyState| {
            state.evictions += u64::from(state.is_leased);
            state.is_leased || state.run.as_ref().is_some_and(is_lent)
        };
        self.clear(is_leased, |run| run.abandoned.cancel());
    }

    /// Forgets everything if `is_wanted`, and does `end` to the run in flight.
    fn clear(&self, is_wanted: impl FnOnce(&mut KeyState) -> bool, end: impl FnOnce(&Run)) {
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

/// The evictions that a change of the account (`is_newer`) is: one if a credential is held. A plugin may change the files in each run,
/// and none of its credentials is held then; their watches must not end again and again.
fn evictions(state: &KeyState, is_newer: bool) -> u64 {
    u64::from(is_newer && state.current.is_some())
}

/// The upper half of a peer is its uid.
pub(crate) fn uid(peer: u64) -> u32 {
    u32::try_from(peer >> 32).unwrap_or(u32::MAX)
}

/// The bytes that a caller sent to select `spec`; `None`: no part of it is the caller's.
fn sent_bytes(spec: &PluginSpec) -> Option<usize> {
    let cluster = spec.cluster.as_ref().filter(|_| spec.target.is_none());
    if spec.caller_env.is_empty() && cluster.is_none() {
        return None;
    }
    let variables = spec.caller_env.iter().map(|(name, value)| name.len() + value.len());
    let cluster = cluster.map_or(0, |cluster| {
        let texts = [&cluster.server, &cluster.tls_server_name, &cluster.proxy_url].map(String::len);
        texts.iter().sum::<usize>() + cluster.certificate_authority_data.len() + cluster.config.len()
    });
    Some(variables.sum::<usize>() + cluster)
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
