//! Fetches credentials before they are requested, within a budget.

mod queue;

use std::{
    collections::HashMap,
    future::Future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, error};

use self::queue::{Offers, QueueTurns, queue};
use crate::resolver::{CredentialRequest, Resolver, Source};
use credbroker_cache::CredentialCache;
use credbroker_config::Prewarm;
use credbroker_plugin::{ProfileName, Target};
use credbroker_runner::PluginRunner;

/// After this many failures a credential is fetched only on request.
const ATTEMPTS: u32 = 3;

/// Fetches the credentials that the rules cover. Each rule has a budget for each provider.
#[derive(Debug)]
pub(super) struct Prewarmer<R> {
    rules: Vec<Prewarm>,
    fetcher: Arc<Fetcher<R>>,
    queues: Mutex<Queues>,
    tasks: TaskTracker,
    draining: CancellationToken,
    /// Cancelled when the task of a queue ends, which it does not while this exists.
    ended: CancellationToken,
}

/// By rule and provider.
type Queues = HashMap<(usize, Arc<str>), Offers>;

#[derive(Debug)]
struct Fetcher<R> {
    resolver: Arc<Resolver>,
    cache: CredentialCache<R>,
}

/// One profile to fetch.
#[derive(Debug)]
struct WantedProfile {
    profile: ProfileName,
    provider: Arc<str>,
    attempts: u32,
}

type Later = Pin<Box<dyn Future<Output = WantedProfile> + Send>>;

impl<R: PluginRunner> Prewarmer<R> {
    pub(super) fn new(
        rules: Vec<Prewarm>,
        resolver: Arc<Resolver>,
        cache: CredentialCache<R>,
        tasks: TaskTracker,
        draining: CancellationToken,
    ) -> Self {
        let fetcher = Arc::new(Fetcher { resolver, cache });
        Self { rules, fetcher, queues: Mutex::default(), tasks, draining, ended: CancellationToken::new() }
    }

    /// Resolves if the task of a queue has ended, also after a panic.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// A profile leads to a new target. Queues it for the first rule that covers it, if any.
    pub(super) fn offer(&self, target: &Arc<Target>) {
        let (profile, provider) = (&target.profile, &target.provider.name);
        let covering = self.rules.iter().enumerate().find(|(_, rule)| rule.covers(profile, provider));
        let Some((index, rule)) = covering else { return };
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || self.start(rule.clone(), Arc::clone(provider));
        queues.entry((index, Arc::clone(provider))).or_insert_with(start).offer(profile);
    }

    fn start(&self, rule: Prewarm, provider: Arc<str>) -> Offers {
        let (offers, turns) = queue();
        let (fetcher, draining) = (Arc::clone(&self.fetcher), self.draining.clone());
        let ended = self.ended.clone().drop_guard();
        self.tasks.spawn(async move {
            let _ended = ended;
            tokio::select! {
                () = draining.cancelled() => {}
                () = work(&fetcher, &rule, &provider, turns) => {}
            }
        });
        offers
    }
}

/// Works through one queue with the rule's `concurrency` and `runsPerSecond`. The scheduler runs requests of callers
/// first.
async fn work<R: PluginRunner>(
    fetcher: &Fetcher<R>,
    rule: &Prewarm,
    provider: &Arc<str>,
    mut turns: QueueTurns,
) {
    let mut pace =
        interval(Duration::from_secs(1) / u32::try_from(rule.runs_per_second.get()).unwrap_or(u32::MAX));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = FuturesUnordered::new();
    let mut later: FuturesUnordered<Later> = FuturesUnordered::new();
    loop {
        let has_room = running.len() < rule.concurrency.get();
        let wanted = tokio::select! {
            Some(retry) = running.next() => {
                later.extend(retry);
                continue;
            }
            Some(wanted) = later.next(), if has_room => wanted,
            Some(profile) = turns.next(), if has_room => {
                WantedProfile { profile, provider: Arc::clone(provider), attempts: 0 }
            }
            else => return,
        };
        // Running fetches continue meanwhile.
        let mut turn = pin!(pace.tick());
        loop {
            tokio::select! {
                _ = &mut turn => break,
                Some(retry) = running.next() => later.extend(retry),
            }
        }
        running.push(fetcher.fetch_or_log(wanted));
    }
}

impl<R: PluginRunner> Fetcher<R> {
    /// One fetch. A panic ends it, and no other.
    async fn fetch_or_log(&self, wanted: WantedProfile) -> Option<Later> {
        let profile = wanted.profile.clone();
        // What fetches share is consistent whenever its lock is free.
        let fetched = AssertUnwindSafe(self.fetch(wanted)).catch_unwind().await;
        fetched.unwrap_or_else(|_panic| {
            error!(%profile, "a bug in the broker ended fetching ahead for this ClusterProfile; please report it");
            None
        })
    }

    /// One fetch. Returns the retry, if there is to be one.
    async fn fetch(&self, wanted: WantedProfile) -> Option<Later> {
        let WantedProfile { profile, provider, attempts } = wanted;
        let ask = CredentialRequest {
            source: Source::ClusterProfile(profile.clone()),
            ..CredentialRequest::default()
        };
        // A profile that has changed in the meantime was offered again.
        let spec = self.resolver.resolve(ask).ok()?;
        let failed = self.cache.fetch_ahead(spec).await.err()?;
        let attempts = attempts + 1;
        debug!(%profile, attempts, "fetching ahead failed: {failed}");
        let again = WantedProfile { profile, provider, attempts };
        (attempts < ATTEMPTS).then(|| -> Later {
            Box::pin(async move {
                sleep(failed.retry_after).await;
                again
            })
        })
    }
}

#[cfg(test)]
mod tests;
