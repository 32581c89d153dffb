//! One key's cell: what is held, what failed, and who runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    callers::Callers,
    policy::{Decision, decide, decide_rejected},
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
    pub(crate) callers: Callers,
    /// Milliseconds since boot of the last ask.
    last_used: AtomicU64,
    /// Open watches.
    pub(crate) watchers: AtomicUsize,
    /// Runs that were started.
    pub(crate) runs: AtomicU64,
    /// Nobody finds it any more. Those who wait for its run are the last.
    pub(crate) forgotten: CancellationToken,
}

impl Entry {
    pub(crate) fn new(spec: Arc<PluginSpec>, now: Now) -> Self {
        let entry = Self {
            spec,
            cell: watch::Sender::default(),
            callers: Callers::default(),
            last_used: AtomicU64::default(),
            watchers: AtomicUsize::default(),
            runs: AtomicU64::default(),
            forgotten: CancellationToken::new(),
        };
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

    /// Whether somebody watches it.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Whether a run is in flight or somebody waits for one or watches.
    pub(crate) fn is_busy(&self) -> bool {
        self.cell.receiver_count() > 0 || self.cell.borrow().running
    }

    /// Decides, and takes the turn if a run is called for and none is in flight, in one step: between a look and a
    /// claim another run could start and end.
    pub(crate) fn look(self: &Arc<Self>, now: Now) -> Look {
        self.look_with(|state| decide(state, now))
    }

    /// The same for somebody whose API server refused `generation`.
    pub(crate) fn look_rejected(self: &Arc<Self>, generation: &str, now: Now) -> Look {
        self.look_with(|state| decide_rejected(state, generation, now))
    }

    /// Takes the turn, if none is in flight, whatever there is: somebody wants a run now.
    pub(crate) fn look_anew(self: &Arc<Self>) -> Look {
        self.look_with(|_| Decision::Wait)
    }

    fn look_with(self: &Arc<Self>, decide: impl FnOnce(&mut State) -> Decision) -> Look {
        let mut look = Look { decision: Decision::Wait, finished: 0, claim: None };
        self.cell.send_if_modified(|state| {
            look.decision = decide(state);
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

    /// Resolves when no run of it is of use to anybody.
    pub(crate) async fn useless(&self) {
        self.forgotten.cancelled().await;
        self.cell.closed().await;
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

/// The right to run: there is one per key at a time. Whoever holds it must [`finish`](Claim::finish) or
/// [`abandon`](Claim::abandon) it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Claim(pub(crate) Arc<Entry>);

impl Claim {
    /// Publishes the end of the run and gives the right back. A failure leaves the credential as it is.
    pub(crate) fn finish(self, outcome: Result<Current, Failure>, now: Now) {
        self.0.cell.send_modify(|state| {
            match outcome {
                Ok(current) => state.take(current, now),
                Err(failure) => state.failure = Some(failure),
            }
            state.outdated = false;
            state.running = false;
            state.finished = state.finished.wrapping_add(1);
        });
    }

    /// Gives the right back without an outcome: whoever came to wait meanwhile looks again, and runs anew.
    pub(crate) fn abandon(self) {
        self.0.cell.send_modify(|state| {
            state.running = false;
            state.finished = state.finished.wrapping_add(1);
        });
    }
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.boot.as_millis()).unwrap_or(u64::MAX)
}
