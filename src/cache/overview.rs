//! What is held, for people; and what people can do about it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use super::{CredentialCache, Failed, entry::Entry, state::State};
use crate::{
    credential::{Issued, Now},
    exec::PluginRunner,
    plugin::{PluginSpec, ProfileName, Target},
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

    /// What each key of a ClusterProfile is good for, and why it is good for nothing.
    pub fn held_for_profiles(&self) -> Vec<(ProfileName, Holding, Option<Failed>)> {
        let now = self.now();
        let entries = self.lock();
        let of_profiles = entries.values().filter_map(|entry| Some((entry, entry.spec.target.as_ref()?)));
        let held = of_profiles.map(|(entry, target)| {
            let state = entry.cell.borrow();
            let failed = state.failure.as_ref().map(|failure| failure.at(now));
            (target.profile.clone(), holding(&state, now), failed)
        });
        held.collect()
    }

    /// Forgets what is held for `profile`, but for what leads to `now`: the profile leads elsewhere, or is gone. Who
    /// waits for a run in flight still gets its outcome, for the place that was asked for; nobody else does, and a run
    /// that nobody waits for is ended.
    pub fn forget(&self, profile: &ProfileName, now: Option<&Arc<Target>>) {
        let stale = |entry: &Entry| {
            let target = entry.spec.target.as_ref().filter(|target| target.profile == *profile);
            target.is_some_and(|target| !now.is_some_and(|now| now.is_same(target)))
        };
        let mut gone = Vec::new();
        self.lock().retain(|_, entry| {
            let stays = !stale(entry);
            if !stays {
                gone.push(Arc::clone(entry));
            }
            stays
        });
        for entry in gone {
            entry.cell.send_modify(|state| (state.current, state.failure) = (None, None));
            entry.forgotten.cancel();
        }
    }

    /// Resolves when a run of `provider` would keep nobody waiting who asked.
    pub async fn spare(&self, provider: &Arc<str>) {
        self.inner.parts.runner.spare(provider).await;
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
    Held {
        spec: Arc::clone(&entry.spec),
        holding: holding(&state, now),
        valid: current.map(|current| (Arc::clone(&current.issued), current.due_wall())),
        failure: state.failure.as_ref().map(|failure| (failure.at(now), failure.attempts)),
        watchers: entry.watchers.load(Ordering::Relaxed),
        runs: entry.runs.load(Ordering::Relaxed),
    }
}

fn holding(state: &State, now: Now) -> Holding {
    let valid = state.current.as_ref().is_some_and(|current| current.issued.is_valid_at(now));
    match (valid, state.running, &state.failure) {
        (true, true, _) | (true, _, Some(_)) => Holding::Renewing,
        (true, false, None) => Holding::Valid,
        (false, true, _) => Holding::Waiting,
        (false, false, Some(_)) => Holding::Failed,
        (false, false, None) => Holding::Empty,
    }
}
