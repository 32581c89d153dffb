//! The keys of each provider in numbers, for metrics and health.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use super::{CredentialCache, Failed, Holding, entries::position, overview::holding};
use credbroker_runner::PluginRunner;

/// Entries that are read before other tasks run.
const AT_A_TIME: usize = 256;

/// The keys of one provider.
#[derive(Debug, Default)]
pub struct ProviderSummary {
    /// The number of keys in each state; states without keys are left out.
    pub keys: BTreeMap<Holding, u64>,
    /// Open watches.
    pub watchers: u64,
    /// How long the first of the valid credentials is valid.
    pub expires_in: Option<Duration>,
    /// `NotAfter` of the first of the client certificates, also of one that has expired.
    pub certificate: Option<SystemTime>,
    /// The last failure of a key without a valid credential.
    pub failed: Option<Failed>,
}

impl ProviderSummary {
    /// Whether a key has a valid credential.
    pub fn holds_valid(&self) -> bool {
        self.keys.contains_key(&Holding::Valid) || self.keys.contains_key(&Holding::Renewing)
    }
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Summarises the keys of one provider, or of all.
    pub async fn summaries(&self, provider: Option<&str>) -> BTreeMap<Arc<str>, ProviderSummary> {
        let mut all = BTreeMap::<_, ProviderSummary>::new();
        let mut last = None;
        loop {
            let entries = self.lock().after(provider, last.as_ref(), AT_A_TIME);
            let Some(end) = entries.last() else { return all };
            last = Some(position(&end.spec));
            let now = self.now();
            for entry in &entries {
                let summary = all.entry(Arc::clone(&entry.spec.provider.name)).or_default();
                let state = entry.cell.borrow();
                let holding = holding(&state, now);
                *summary.keys.entry(holding).or_default() += 1;
                summary.watchers += entry.watchers.load(Ordering::Relaxed) as u64;
                let left = state.valid(now).map(|current| current.issued.left(now));
                summary.expires_in = earliest(summary.expires_in, left);
                let held = state.current.as_ref().and_then(|current| current.issued.certificate);
                summary.certificate = earliest(summary.certificate, held.map(|validity| validity.to));
                if let (Holding::Failed, Some(failure)) = (holding, &state.failure) {
                    summary.failed = Some(failure.at(now, false));
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether the broker drains: no more runs start.
    pub fn is_draining(&self) -> bool {
        self.inner.parts.draining.is_cancelled()
    }
}

fn earliest<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}
