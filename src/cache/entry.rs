//! One key's cell: what is held, what failed, and which run is on its way.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{
    caller::Callers,
    flight::Flight,
    policy::{Care, Decision, Usage, care},
    state::State,
    suspicion::Verification,
};
use crate::{credential::Now, exec::Urgency, plugin::PluginSpec};

/// The cell of one key.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) spec: Arc<PluginSpec>,
    pub(crate) cell: watch::Sender<State>,
    pub(crate) callers: Callers,
    /// What an API server was asked last.
    pub(crate) verification: Mutex<Option<Verification>>,
    /// Milliseconds since boot of the last request.
    last_used: AtomicU64,
    /// Open watches.
    pub(crate) watchers: AtomicUsize,
    /// Callers that wait, or watch: the entry stays in the map.
    pub(crate) interest: AtomicUsize,
    /// Runs that were started.
    pub(crate) runs: AtomicU64,
    /// It is being taken out of the map.
    pub(crate) leaves: AtomicBool,
}

/// One look at an entry.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) decision: Decision,
    /// The run in flight, if there is one.
    pub(crate) flight: Option<Arc<Flight>>,
    /// The run in flight is new, and ours to start.
    pub(crate) starts: bool,
}

impl Entry {
    pub(crate) fn new(spec: Arc<PluginSpec>, now: Now) -> Self {
        let entry = Self {
            spec,
            cell: watch::Sender::default(),
            callers: Callers::default(),
            verification: Mutex::default(),
            last_used: AtomicU64::default(),
            watchers: AtomicUsize::default(),
            interest: AtomicUsize::default(),
            runs: AtomicU64::default(),
            leaves: AtomicBool::default(),
        };
        entry.touch(now);
        entry
    }

    /// It was asked for.
    pub(crate) fn touch(&self, now: Now) {
        self.last_used.store(millis(now), Ordering::Relaxed);
    }

    /// Time since the last request.
    pub(crate) fn idle(&self, now: Now) -> Duration {
        Duration::from_millis(millis(now).saturating_sub(self.last_used.load(Ordering::Relaxed)))
    }

    /// Whether it has to stay in the map: callers wait or watch, or a run is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.interest.load(Ordering::Relaxed) > 0 || self.cell.borrow().flight.is_some()
    }

    /// Whether there are open watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Whether what it holds is over.
    pub(crate) fn has_expired(&self, now: Now) -> bool {
        let state = self.cell.borrow();
        state.current.is_some() && state.valid(now).is_none()
    }

    /// What there is to do for it, whether it is asked for or not.
    pub(crate) fn care(&self, now: Now) -> Care {
        let usage = Usage {
            idle: self.idle(now),
            watched: self.is_watched(),
            awaited: self.interest.load(Ordering::Relaxed) > 0,
            file: self.spec.file_version(),
            timeout: self.spec.provider.timeout,
        };
        care(&self.cell.borrow(), usage, now)
    }

    /// Decides, and makes a run if one is called for and none is in flight, in one step: between a look and a claim
    /// another run could start and end.
    pub(crate) fn look(&self, urgency: Urgency, decide: impl FnOnce(&mut State) -> Decision) -> Look {
        let mut look = Look { decision: Decision::Wait, flight: None, starts: false };
        self.cell.send_if_modified(|state| {
            look.decision = decide(state);
            let wanted = matches!(look.decision, Decision::Wait | Decision::ServeAndRefresh(_));
            if wanted && state.flight.is_none() {
                state.flight = Some(Arc::new(Flight::new(urgency)));
                look.starts = true;
            }
            look.flight.clone_from(&state.flight);
            false // the beginning of a run is not news
        });
        look
    }

    /// Waits until something is held that is valid.
    pub(crate) async fn holds(&self, now: impl Fn() -> Now) {
        let is_valid = |state: &State| state.valid(now()).is_some();
        // The sender lives as long as the entry.
        drop(self.cell.subscribe().wait_for(is_valid).await.map(|_| ()));
    }

    /// Forgets what is held. A run in flight goes on only for the callers that wait for it, and its outcome is not kept:
    /// it may have begun as another account.
    pub(crate) fn forget(&self) {
        let mut flight = None;
        self.cell.send_modify(|state| {
            (state.current, state.failure, state.rejections) = (None, None, None);
            flight = state.flight.take();
        });
        self.forget_verification();
        if let Some(flight) = flight {
            flight.detach();
        }
    }

    /// Forgets what an API server was asked: a question that was not answered holds the credential.
    pub(crate) fn forget_verification(&self) {
        *self.verification.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Keeps an entry in the map while a caller waits or watches.
#[derive(Debug)]
pub(crate) struct Interest(pub(crate) Arc<Entry>);

impl Interest {
    /// Must be called under the lock of the map that `entry` is in: then it is not taken out meanwhile.
    pub(crate) fn new(entry: &Arc<Entry>) -> Self {
        entry.interest.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(entry))
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.interest.fetch_sub(1, Ordering::Relaxed);
    }
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.boot.as_millis()).unwrap_or(u64::MAX)
}
