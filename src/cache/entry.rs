//! One key's cell: what is held, what failed, and who runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{
    policy::{Decision, decide},
    state::{Current, Failure, State},
};
use crate::{
    credential::{Issued, Now},
    plugin::PluginSpec,
};

/// The cell of one key. All who wait for a run watch the same one.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) spec: Arc<PluginSpec>,
    pub(crate) cell: watch::Sender<State>,
    /// Milliseconds since boot of the last ask.
    last_used: AtomicU64,
}

impl Entry {
    pub(crate) fn new(spec: Arc<PluginSpec>, now: Now) -> Self {
        let entry = Self { spec, cell: watch::Sender::default(), last_used: AtomicU64::default() };
        entry.touch(now);
        entry
    }

    /// Somebody asked.
    pub(crate) fn touch(&self, now: Now) {
        self.last_used.store(millis(now), Ordering::Relaxed);
    }

    /// How long nobody asked.
    pub(crate) fn idle(&self, now: Now) -> Duration {
        Duration::from_millis(millis(now).saturating_sub(self.last_used.load(Ordering::Relaxed)))
    }

    /// Whether a run is in flight or somebody waits for one.
    pub(crate) fn is_busy(&self) -> bool {
        self.cell.receiver_count() > 0 || self.cell.borrow().running
    }

    /// Decides, and takes the turn if a run is called for and none is in flight, in one step: between a look and a
    /// claim another run could start and end.
    pub(crate) fn look(self: &Arc<Self>, now: Now) -> Look {
        let mut look = Look { decision: Decision::Wait, finished: 0, claim: None };
        self.cell.send_if_modified(|state| {
            look.decision = decide(state, now);
            look.finished = state.finished;
            let wanted = matches!(look.decision, Decision::Wait | Decision::ServeAndRefresh(_));
            if wanted && !state.running {
                state.running = true;
                look.claim = Some(Claim(Arc::clone(self)));
            }
            false // nobody waits for a run to begin
        });
        look
    }

    /// What the cell holds now.
    pub(crate) fn held(&self) -> Held {
        let state = self.cell.borrow();
        Held { current: state.current.clone(), failure: state.failure.clone() }
    }

    /// What the next run to end after `finished` runs leaves behind.
    pub(crate) async fn next_outcome(&self, finished: u64) -> Result<Arc<Issued>, Option<Failure>> {
        let mut receiver = self.cell.subscribe();
        // The sender lives as long as `self`.
        let Ok(state) = receiver.wait_for(|state| state.finished != finished).await else { return Err(None) };
        match (&state.failure, &state.current) {
            (None, Some(current)) => Ok(Arc::clone(&current.issued)),
            (failure, _) => Err(failure.clone()),
        }
    }
}

/// What a run finds in its cell.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) current: Option<Current>,
    pub(crate) failure: Option<Failure>,
}

/// One look at an entry.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) decision: Decision,
    /// Runs that had ended: what to wait past.
    pub(crate) finished: u64,
    /// Here: the run to start is ours.
    pub(crate) claim: Option<Claim>,
}

/// The right to run: there is one per key at a time. Whoever holds it must [`finish`](Claim::finish) it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Claim(pub(crate) Arc<Entry>);

impl Claim {
    /// Publishes the end of the run and gives the right back. A failure leaves the credential as it is.
    pub(crate) fn finish(self, outcome: Result<Current, Failure>) {
        self.0.cell.send_modify(|state| {
            match outcome {
                Ok(current) => (state.current, state.failure) = (Some(current), None),
                Err(failure) => state.failure = Some(failure),
            }
            state.running = false;
            state.finished = state.finished.wrapping_add(1);
        });
    }
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.boot.as_millis()).unwrap_or(u64::MAX)
}
