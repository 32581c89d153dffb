//! The state of the keys, for people, for metrics and health, and for the fleet.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use super::{
    cache::CredentialCache,
    entries::{ListPosition, position},
    entry::KeyEntry,
    error::{Failed, Failure},
    rejection::RejectionStatus,
    request::Selector,
    state::{KeyState, next_refresh, outlook},
};
use credbroker_credential::{Issued, Now};
use credbroker_plugin::{PluginSpec, ProfileName};
pub use credbroker_proto::v1alpha1::credential_state::Cause as RunCause;
use credbroker_runner::PluginRunner;

/// The state of one key, without its credential.
#[derive(Debug)]
pub struct KeyStatus {
    /// The invocation.
    pub spec: Arc<PluginSpec>,
    /// Whether there is a credential.
    pub holding: Holding,
    /// The valid credential, if there is one.
    pub issued: Option<Arc<Issued>>,
    /// When the broker next runs the plugin without being asked: for a refresh, or to retry one. `None`: a run is queued
    /// or in progress, or only a request starts one.
    pub next_refresh: Option<SystemTime>,
    /// Why the next run starts, and not before when; `None`: the cause does not wait for a time.
    pub next_run: (RunCause, Option<SystemTime>),
    /// Why the last run brought no credential, and the number of failures in a row.
    pub failure: Option<(Failed, u32)>,
    /// Open watches.
    pub watchers: usize,
    /// Runs so far.
    pub runs: u64,
    /// What is known about rejections, if one was reported or suspected.
    pub rejections: Option<RejectionStatus>,
}

/// Whether there is a credential for a key.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Holding {
    /// There is a valid one.
    Valid,
    /// There is a valid one; its successor is being fetched, or could not be fetched.
    Refreshing,
    /// There is none; a run is queued or in progress.
    Waiting,
    /// There is none, and the last run failed.
    Failed,
    /// There is none; the next request starts a run.
    Empty,
}

impl Holding {
    /// Its name in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Refreshing => "refreshing",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Empty => "empty",
        }
    }
}

impl KeyStatus {
    /// Its position in the list, for [`CredentialCache::list`].
    pub fn position(&self) -> ListPosition {
        position(&self.spec)
    }
}

/// The keys of one provider.
#[derive(Debug, Default)]
pub struct ProviderSummary {
    /// The number of keys in each state; states without keys are left out.
    pub keys: BTreeMap<Holding, u64>,
    /// Open watches.
    pub watchers: u64,
    /// When the first of the valid credentials expires.
    pub expires_at: Option<SystemTime>,
    /// `NotAfter` of the first of the client certificates, also of one that has expired.
    pub certificate: Option<SystemTime>,
    /// The last failure of a key without a valid credential.
    pub failed: Option<Failed>,
}

impl ProviderSummary {
    /// Whether a key has a valid credential.
    pub fn holds_valid(&self) -> bool {
        self.keys.contains_key(&Holding::Valid) || self.keys.contains_key(&Holding::Refreshing)
    }
}

impl<R: PluginRunner> CredentialCache<R> {
    /// At most `count` of the selected keys that follow `after`, in the order of provider and key.
    pub fn list(&self, selector: &Selector, after: Option<&ListPosition>, count: usize) -> Vec<KeyStatus> {
        let entries = self.lock().select(selector, after, count);
        let now = self.now();
        entries.iter().map(|entry| self.status_of(entry, now)).collect()
    }

    /// Returns the state of each key of a ClusterProfile, and why it has no credential.
    pub fn profile_states(&self) -> Vec<(ProfileName, Holding, Option<Failed>)> {
        let entries = { self.lock().matching(|entry| entry.spec.target.is_some()) };
        let now = self.now();
        let state = |entry: &Arc<KeyEntry>| {
            let (target, state) = (entry.spec.target.as_ref()?, entry.cell.borrow());
            let failed = state.failure.as_ref().map(|failure| self.failed(entry, failure, now));
            Some((target.profile.clone(), holding(&state, now), failed))
        };
        entries.iter().filter_map(state).collect()
    }

    /// As [`profile_states`](Self::profile_states), of the keys without a ClusterProfile.
    pub fn provider_states(&self) -> Vec<(Arc<PluginSpec>, Holding, Option<Failed>)> {
        let entries = { self.lock().matching(|entry| entry.spec.target.is_none()) };
        let now = self.now();
        let state = |entry: &Arc<KeyEntry>| {
            let state = entry.cell.borrow();
            let failed = state.failure.as_ref().map(|failure| self.failed(entry, failure, now));
            (Arc::clone(&entry.spec), holding(&state, now), failed)
        };
        entries.iter().map(state).collect()
    }

    fn status_of(&self, entry: &KeyEntry, now: Now) -> KeyStatus {
        let usage = entry.usage(now);
        let paused = self.inner.parts.scheduler.paused(&entry.spec.provider);
        let state = entry.cell.borrow();
        let issued = state.current.as_ref().map(|current| &*current.issued);
        let rejections = state.rejections.as_ref().map(|rejections| {
            let until = rejections.not_before(issued, now);
            let next_run = until.map(|until| now.wall + until.saturating_sub(now.boot));
            RejectionStatus { next_run, ..rejections.known }
        });
        let failure = state.failure.as_ref();
        let (cause, wait) = outlook(&state, usage, paused, now);
        KeyStatus {
            spec: Arc::clone(&entry.spec),
            holding: holding(&state, now),
            issued: state.valid(now).map(|current| Arc::clone(&current.issued)),
            next_refresh: next_refresh(&state, usage, now).map(|wait| now.wall + wait),
            next_run: (cause, wait.map(|wait| now.wall + wait)),
            failure: failure.map(|failure| (self.failed(entry, failure, now), failure.attempts)),
            watchers: entry.watchers.load(Ordering::Relaxed),
            runs: entry.runs.load(Ordering::Relaxed),
            rejections,
        }
    }

    /// What a caller would get. A pause of the issuer may have become longer since the failure.
    fn failed(&self, entry: &KeyEntry, failure: &Failure, now: Now) -> Failed {
        let own = failure.at(now, false);
        let paused =
            failure.error.pause().and_then(|_| self.inner.parts.scheduler.paused(&entry.spec.provider));
        let longer = paused.filter(|left| *left > own.retry_after);
        longer.map_or(own, |left| Failed::paused(&entry.spec, left))
    }

    /// Summarizes the keys of one provider, or of all.
    pub async fn summaries(&self, provider: Option<&str>) -> BTreeMap<Arc<str>, ProviderSummary> {
        let mut all = BTreeMap::<_, ProviderSummary>::new();
        self.visit(provider, |entry, now| {
            let summary = all.entry(Arc::clone(&entry.spec.provider.name)).or_default();
            let state = entry.cell.borrow();
            let holding = holding(&state, now);
            *summary.keys.entry(holding).or_default() += 1;
            summary.watchers += entry.watchers.load(Ordering::Relaxed) as u64;
            let expires_at = state.valid(now).map(|current| current.issued.expires_at);
            summary.expires_at = earliest(summary.expires_at, expires_at);
            let held = state.current.as_ref().and_then(|current| current.issued.certificate);
            summary.certificate = earliest(summary.certificate, held.map(|validity| validity.to));
            if let (Holding::Failed, Some(failure)) = (holding, &state.failure) {
                summary.failed = Some(failure.at(now, false));
            }
        })
        .await;
        all
    }
}

pub(super) fn holding(state: &KeyState, now: Now) -> Holding {
    match (state.valid(now).is_some(), state.run.is_some(), &state.failure) {
        (true, true, _) | (true, _, Some(_)) => Holding::Refreshing,
        (true, false, None) => Holding::Valid,
        (false, true, _) => Holding::Waiting,
        (false, false, Some(_)) => Holding::Failed,
        (false, false, None) => Holding::Empty,
    }
}

fn earliest<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}
