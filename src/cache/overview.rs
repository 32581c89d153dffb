//! What is held, for people; and what people can do about it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use super::{CredentialCache, Failed, entry::Entry};
use crate::{
    credential::{Issued, Now},
    exec::PluginRunner,
    plugin::PluginSpec,
};

/// One key, without its credential.
#[derive(Debug)]
pub struct Held {
    /// The invocation.
    pub spec: Arc<PluginSpec>,
    /// What it is good for.
    pub holding: Holding,
    /// The credential that is held and valid, and when it is to be renewed.
    pub valid: Option<(Arc<Issued>, SystemTime)>,
    /// Why the last run gave nothing, and how many did in a row.
    pub failure: Option<(Failed, u32)>,
    /// Open watches.
    pub watchers: usize,
    /// Runs so far.
    pub runs: u64,
}

/// What a key is good for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holding {
    /// A credential that is served.
    Valid,
    /// One that is served, while the next one is awaited or could not be had.
    Renewing,
    /// None, and a run is in flight.
    Waiting,
    /// None, and the last run failed.
    Failed,
    /// None; the next ask starts a run.
    Empty,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// What is held of `provider`, or of all, sorted by provider and key.
    pub fn list(&self, provider: Option<&str>) -> Vec<Held> {
        let now = self.now();
        let mut held: Vec<_> = self.entries_of(provider).iter().map(|entry| overview(entry, now)).collect();
        held.sort_by(|a, b| (&a.spec.provider.name, a.spec.key).cmp(&(&b.spec.provider.name, b.spec.key)));
        held
    }

    /// Runs the plugin now for everything that is held of `provider`, and waits for the outcomes. The old credentials
    /// are served meanwhile, and stay if a run fails.
    pub async fn refresh(&self, provider: &str) {
        let looks: Vec<_> = self
            .entries_of(Some(provider))
            .into_iter()
            .map(|entry| {
                let look = entry.look_anew();
                if let Some(claim) = look.claim {
                    self.start(claim);
                }
                (entry, look.finished)
            })
            .collect();
        for (entry, finished) in looks {
            // Whatever it is, the overview says it.
            drop(entry.next_outcome(finished).await);
        }
    }

    /// Forgets what is held of `provider`, or all, and returns how many that were. Secrets are wiped when the last
    /// answer that holds them is sent. Watches get the next one.
    pub fn evict(&self, provider: Option<&str>) -> usize {
        let evicted = self.entries_of(provider);
        for entry in &evicted {
            entry.cell.send_modify(|state| {
                state.current = None;
                state.failure = None;
                state.outdated = state.running;
            });
        }
        self.lock()
            .retain(|_, entry| entry.is_busy() || !evicted.iter().any(|gone| Arc::ptr_eq(gone, entry)));
        evicted.len()
    }

    fn entries_of(&self, provider: Option<&str>) -> Vec<Arc<Entry>> {
        let wanted = |entry: &&Arc<Entry>| provider.is_none_or(|name| *entry.spec.provider.name == *name);
        self.lock().values().filter(wanted).cloned().collect()
    }
}

fn overview(entry: &Entry, now: Now) -> Held {
    let state = entry.cell.borrow();
    let current = state.current.as_ref().filter(|current| current.issued.is_valid_at(now));
    let holding = match (current, state.running, &state.failure) {
        (Some(_), true, _) | (Some(_), _, Some(_)) => Holding::Renewing,
        (Some(_), false, None) => Holding::Valid,
        (None, true, _) => Holding::Waiting,
        (None, false, Some(_)) => Holding::Failed,
        (None, false, None) => Holding::Empty,
    };
    Held {
        spec: Arc::clone(&entry.spec),
        holding,
        valid: current.map(|current| (Arc::clone(&current.issued), current.due_wall())),
        failure: state.failure.as_ref().map(|failure| (failure.at(now), failure.attempts)),
        watchers: entry.watchers.load(Ordering::Relaxed),
        runs: entry.runs.load(Ordering::Relaxed),
    }
}
