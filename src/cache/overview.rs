//! What is held, for people.

use std::{
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use super::{CredentialCache, Failed, Selector, entries::place, entry::Entry, state::State};
use crate::{
    credential::{Issued, Now},
    exec::PluginRunner,
    plugin::{PluginKey, PluginSpec, ProfileName},
    verify::Verdict,
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
    /// Why the last run brought no credential, and how many did in a row.
    pub failure: Option<(Failed, u32)>,
    /// Open watches.
    pub watchers: usize,
    /// Runs so far.
    pub runs: u64,
    /// What is known of rejections, if there were any.
    pub rejections: Option<RejectionState>,
}

/// What is known of rejections of one key.
#[derive(Clone, Copy, Debug)]
pub struct RejectionState {
    /// Reports and suspicions.
    pub count: u64,
    /// Answers of an API server.
    pub verifications: u64,
    /// The last of them.
    pub verdict: Option<Verdict>,
    /// Before this, by the wall clock, no rejection starts a run; `None`: the next one may.
    pub next_run: Option<SystemTime>,
}

/// What a key is good for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holding {
    /// A credential that is served.
    Valid,
    /// One that is served, while the next one is awaited or could not be had.
    Renewing,
    /// None, and a run is on its way.
    Waiting,
    /// None, and the last run failed.
    Failed,
    /// None; the next request starts a run.
    Empty,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// At most `count` of the keys that `selector` selects and that follow `after`, sorted by provider and key.
    pub fn list_after(
        &self,
        selector: Selector<'_>,
        after: Option<&(Arc<str>, PluginKey)>,
        count: usize,
    ) -> Vec<Held> {
        let entries = self.lock().after(selector, after, count);
        let now = self.now();
        entries.iter().map(|entry| overview(entry, now)).collect()
    }

    /// What each key of a ClusterProfile is good for, and why it is good for nothing.
    pub fn held_for_profiles(&self) -> Vec<(ProfileName, Holding, Option<Failed>)> {
        let entries: Vec<_> = self.lock().profiles().flatten().cloned().collect();
        let now = self.now();
        let of_profiles = entries.iter().filter_map(|entry| Some((entry, entry.spec.target.as_ref()?)));
        let held = of_profiles.map(|(entry, target)| {
            let state = entry.cell.borrow();
            let failed = state.failure.as_ref().map(|failure| failure.at(now, false));
            (target.profile.clone(), holding(&state, now), failed)
        });
        held.collect()
    }
}

impl Held {
    /// Where it is in the order, for [`CredentialCache::list_after`].
    pub fn place(&self) -> (Arc<str>, PluginKey) {
        place(&self.spec)
    }
}

fn overview(entry: &Entry, now: Now) -> Held {
    let state = entry.cell.borrow();
    let rejections = state.rejections.as_ref().map(|known| RejectionState {
        count: known.count,
        verifications: known.verifications,
        verdict: known.verdict,
        next_run: known.not_before(now).map(|until| now.wall + until.saturating_sub(now.boot)),
    });
    Held {
        spec: Arc::clone(&entry.spec),
        holding: holding(&state, now),
        valid: state.valid(now).map(|current| (Arc::clone(&current.issued), current.due_wall())),
        failure: state.failure.as_ref().map(|failure| (failure.at(now, false), failure.attempts)),
        watchers: entry.watchers.load(Ordering::Relaxed),
        runs: entry.runs.load(Ordering::Relaxed),
        rejections,
    }
}

fn holding(state: &State, now: Now) -> Holding {
    match (state.valid(now).is_some(), state.flight.is_some(), &state.failure) {
        (true, true, _) | (true, _, Some(_)) => Holding::Renewing,
        (true, false, None) => Holding::Valid,
        (false, true, _) => Holding::Waiting,
        (false, false, Some(_)) => Holding::Failed,
        (false, false, None) => Holding::Empty,
    }
}
