//! Fetches credentials before they are requested, within a budget.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{self, Semaphore, SemaphorePermit},
    time::{Interval, MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use crate::{
    fleet::Fleet,
    resolver::{CredentialRequest, Resolver, Source},
};
use credbroker_cache::CredentialCache;
use credbroker_config::Prewarm;
use credbroker_plugin::{ProfileName, Target};
use credbroker_runner::PluginRunner;

/// After this many failures a credential is fetched only on request.
const ATTEMPTS: u32 = 3;

/// What the reader of a hub needs, and what fetches ahead for it.
#[derive(Debug)]
pub struct HubParts<R> {
    /// Receives the profiles.
    pub fleet: Arc<Fleet>,
    /// Resolves profiles, for fetching ahead.
    pub resolver: Arc<Resolver>,
    /// Holds the credentials: the hub's own, if a plugin issues it, and those of the fleet.
    pub cache: CredentialCache<R>,
    /// Uniform in [0, 1): spreads retries.
    pub jitter: fn() -> f64,
    /// Owns the tasks.
    pub tasks: TaskTracker,
    /// Cancelled when the broker stops.
    pub draining: CancellationToken,
}

/// Fetches the credentials that the rules cover, each in a task: a panic ends one fetch alone.
#[derive(Debug)]
pub(super) struct Prewarmer<R> {
    rules: Vec<Prewarm>,
    parts: Arc<HubParts<R>>,
    budgets: Mutex<Budgets>,
}

/// By rule and provider.
type Budgets = HashMap<(usize, Arc<str>), Arc<Budget>>;

impl<R: PluginRunner> Prewarmer<R> {
    pub(super) fn new(rules: Vec<Prewarm>, parts: Arc<HubParts<R>>) -> Self {
        Self { rules, parts, budgets: Mutex::default() }
    }

    /// A profile leads to a new target. Fetches its credential by the first rule that covers it, if any.
    pub(super) fn offer(&self, target: &Arc<Target>) {
        let (profile, provider) = (&target.profile, &target.provider.name);
        let covering = self.rules.iter().enumerate().find(|(_, rule)| rule.covers(profile, provider));
        let Some((index, rule)) = covering else { return };
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = budgets.entry((index, Arc::clone(provider))).or_insert_with(|| Budget::of(rule).into());
        if budget.waiting().insert(profile.clone()) {
            let (parts, budget, profile) = (Arc::clone(&self.parts), Arc::clone(budget), profile.clone());
            self.parts.tasks.spawn(async move {
                parts.draining.run_until_cancelled(fetch(&parts, &budget, profile)).await;
            });
        }
    }
}

/// What a rule allows for one provider. The scheduler runs requests of callers first.
#[derive(Debug)]
struct Budget {
    /// As many as the rule's `concurrency`.
    slots: Semaphore,
    /// Ticks as often as the rule's `runsPerSecond`.
    pace: sync::Mutex<Interval>,
    /// The profiles that wait for their turn. Each waits at most once, so one that changes often does not delay the others.
    waiting: Mutex<HashSet<ProfileName>>,
}

impl Budget {
    fn of(rule: &Prewarm) -> Self {
        let per_second = u32::try_from(rule.runs_per_second.get()).unwrap_or(u32::MAX);
        let mut pace = interval((Duration::from_secs(1) / per_second).max(Duration::from_nanos(1)));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let slots = Semaphore::new(rule.concurrency.get().min(Semaphore::MAX_PERMITS));
        Self { slots, pace: pace.into(), waiting: Mutex::default() }
    }

    /// Waits until `profile` has its turn, which lasts until the permit is dropped. It can be offered again from then on,
    /// because its target is looked up later.
    async fn turn(&self, profile: &ProfileName) -> Option<SemaphorePermit<'_>> {
        let slot = self.slots.acquire().await.ok();
        self.pace.lock().await.tick().await;
        self.waiting().remove(profile);
        slot
    }

    /// Every update is complete when the lock is released, so a poisoned lock is usable.
    fn waiting(&self) -> MutexGuard<'_, HashSet<ProfileName>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches the credential of `profile`, which waits for its turn.
async fn fetch<R: PluginRunner>(parts: &HubParts<R>, budget: &Budget, profile: ProfileName) {
    for attempts in 1..=ATTEMPTS {
        let turn = budget.turn(&profile).await;
        let source = Source::ClusterProfile(profile.clone());
        let ask = CredentialRequest { source, ..CredentialRequest::default() };
        // A profile that has changed in the meantime was offered again.
        let Ok(spec) = parts.resolver.resolve(ask) else { return };
        let Err(failed) = parts.cache.fetch_ahead(spec).await else { return };
        drop(turn);
        debug!(%profile, attempts, "fetching ahead failed: {failed}");
        if attempts < ATTEMPTS {
            sleep(failed.retry_after).await;
            if !budget.waiting().insert(profile.clone()) {
                return; // it was offered again
            }
        }
    }
}

#[cfg(test)]
mod tests;
