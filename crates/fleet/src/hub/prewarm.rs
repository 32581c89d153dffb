//! Fetches credentials before they are requested, within a budget.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, error};

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

/// Fetches the credentials that the rules cover. Each rule has a budget for each provider.
#[derive(Debug)]
pub(super) struct Prewarmer<R> {
    rules: Vec<Prewarm>,
    parts: Arc<HubParts<R>>,
    queues: Mutex<Queues>,
    /// Cancelled when the task of a queue ends, which it does not while this exists.
    ended: CancellationToken,
}

/// By rule and provider.
type Queues = HashMap<(usize, Arc<str>), UnboundedSender<ProfileName>>;

/// A profile to fetch, and how many attempts have failed.
type Wanted = (ProfileName, u32);

impl<R: PluginRunner> Prewarmer<R> {
    pub(super) fn new(rules: Vec<Prewarm>, parts: Arc<HubParts<R>>) -> Self {
        Self { rules, parts, queues: Mutex::default(), ended: CancellationToken::new() }
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
        let queue = queues.entry((index, Arc::clone(provider))).or_insert_with(|| self.start(rule.clone()));
        // Closed only when the broker drains.
        drop(queue.send(profile.clone()));
    }

    fn start(&self, rule: Prewarm) -> UnboundedSender<ProfileName> {
        let (sender, offers) = unbounded_channel();
        let (parts, ended) = (Arc::clone(&self.parts), self.ended.clone().drop_guard());
        self.parts.tasks.spawn(async move {
            let _ended = ended;
            parts.draining.run_until_cancelled(work(&parts, &rule, offers)).await;
        });
        sender
    }
}

/// Works through one queue with the rule's `concurrency` and `runsPerSecond`. The scheduler runs requests of callers
/// first.
async fn work<R: PluginRunner>(
    parts: &HubParts<R>,
    rule: &Prewarm,
    mut offers: UnboundedReceiver<ProfileName>,
) {
    let mut pace =
        interval(Duration::from_secs(1) / u32::try_from(rule.runs_per_second.get()).unwrap_or(u32::MAX));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut running, mut later) = (FuturesUnordered::new(), FuturesUnordered::new());
    // Each profile waits at most once, however often it changes meanwhile: the queue is never longer than the fleet, and a
    // profile that changes often does not delay the others.
    let (mut queue, mut waiting) = (VecDeque::<Wanted>::new(), HashSet::new());
    loop {
        let has_turn = running.len() < rule.concurrency.get() && !queue.is_empty();
        let wanted = tokio::select! {
            Some(wanted) = later.next() => wanted,
            Some(profile) = offers.recv() => (profile, 0),
            Some(retry) = running.next() => {
                later.extend(retry);
                continue;
            }
            _ = pace.tick(), if has_turn => {
                if let Some(wanted) = queue.pop_front() {
                    // It can be offered again from now on, because its target is looked up later.
                    waiting.remove(&wanted.0);
                    running.push(fetch_or_log(parts, wanted));
                }
                continue;
            }
            else => return,
        };
        if waiting.insert(wanted.0.clone()) {
            queue.push_back(wanted);
        }
    }
}

/// One fetch. A panic ends it, and no other.
async fn fetch_or_log<R: PluginRunner>(
    parts: &HubParts<R>,
    wanted: Wanted,
) -> Option<BoxFuture<'static, Wanted>> {
    let profile = wanted.0.clone();
    // What fetches share is consistent whenever its lock is free.
    let fetched = AssertUnwindSafe(fetch(parts, wanted)).catch_unwind().await;
    fetched.unwrap_or_else(|_panic| {
        error!(%profile, "a bug in the broker ended fetching ahead for this ClusterProfile; please report it");
        None
    })
}

/// One fetch. Returns the retry, if there is to be one.
async fn fetch<R: PluginRunner>(
    parts: &HubParts<R>,
    (profile, failures): Wanted,
) -> Option<BoxFuture<'static, Wanted>> {
    let source = Source::ClusterProfile(profile.clone());
    // A profile that has changed in the meantime was offered again.
    let spec = parts.resolver.resolve(CredentialRequest { source, ..CredentialRequest::default() }).ok()?;
    let failed = parts.cache.fetch_ahead(spec).await.err()?;
    let attempts = failures + 1;
    debug!(%profile, attempts, "fetching ahead failed: {failed}");
    let again = async move {
        sleep(failed.retry_after).await;
        (profile, attempts)
    };
    (attempts < ATTEMPTS).then(|| again.boxed())
}

#[cfg(test)]
mod tests;
