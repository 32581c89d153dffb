//! Refreshing and forgetting keys on demand.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use super::{
    CredentialCache, Selector,
    entry::{Interest, KeyEntry},
};
use credbroker_plugin::{ProfileName, Target};
use credbroker_runner::{PluginRunner, Urgency};

impl<R: PluginRunner> CredentialCache<R> {
    pub(super) async fn run_now(&self, selector: &Selector) -> usize {
        // The interest is held until the end: a queued run without a caller is abandoned.
        let selected: Vec<_> =
            { self.lock().select(selector, None, usize::MAX).iter().map(Interest::new).collect() };
        let (mut issuers, mut flights) = (HashSet::new(), Vec::with_capacity(selected.len()));
        for Interest(entry) in &selected {
            let is_first = issuers.insert(&entry.spec.provider.issuer.name);
            let urgency = if is_first { Urgency::Forced } else { Urgency::Background };
            if let Some(flight) = self.force_claim(entry, urgency) {
                flight.set_floor(urgency);
                flights.push(flight);
            }
        }
        for flight in flights {
            // The list shows the outcome.
            drop(flight.outcome().await);
        }
        selected.len()
    }

    pub(super) fn take_out(&self, selector: &Selector) -> usize {
        let evicted = self.lock().take_out(selector);
        let count = evicted.len();
        let is_unused = |entry: &Arc<KeyEntry>| {
            entry.leaves.load(Ordering::Relaxed) && entry.cell.borrow().flight.is_none()
        };
        let (unused, used): (Vec<_>, Vec<_>) = evicted.into_iter().partition(is_unused);
        for entry in &used {
            entry.forget();
        }
        self.changed();
        // Requests no longer find these entries. Wiping thousands of them here would delay other requests.
        self.inner.parts.tasks.spawn_blocking(move || {
            for entry in unused {
                entry.forget();
            }
        });
        count
    }

    pub(super) fn take_retired(&self) -> usize {
        let retired = self.lock().take_retired();
        for (entry, why) in &retired {
            entry.retire(*why);
        }
        self.changed();
        retired.len()
    }

    pub(super) fn take_leased(&self) {
        // A run that starts afterwards finds the provider shared when it ends.
        let shared = self.lock().shared();
        for entry in &shared {
            entry.forget_leased();
        }
    }

    pub(super) fn forget_profile(&self, profile: &ProfileName, now: Option<&Arc<Target>>) {
        let is_stale = |entry: &Arc<KeyEntry>| {
            let target = entry.spec.target.as_ref();
            target.is_some_and(|target| !now.is_some_and(|now| now.is_same(target)))
        };
        let stale: Vec<_> = {
            let mut entries = self.lock();
            let stale = entries.of_profile(profile).iter().filter(|entry| is_stale(entry)).cloned().collect();
            for entry in &stale {
                entries.remove(entry);
            }
            stale
        };
        for entry in &stale {
            entry.forget();
        }
        self.changed();
    }
}
