//! Makes the snapshots that all readers share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, Notify, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    Clusters, LOOK_EVERY,
    hub::{HubHistory, TimedHubState},
    snapshot::Snapshot,
};
use crate::{
    cache::CredentialCache, clock::Clock, exec::PluginRunner, fleet::Fleet, resolver::Resolver,
    server::readiness::Readiness,
};

/// Delay after a change, so that changes close together share one message.
pub(super) const GATHER: Duration = Duration::from_millis(50);

/// What all readers share.
#[derive(Debug)]
pub(super) struct Shared<R> {
    pub(super) fleet: Arc<Fleet>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) cache: CredentialCache<R>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) history: HubHistory,
    /// Time since boot at which the newest snapshot was begun. The lock ensures that one is made at a time.
    pub(super) making: Mutex<Option<Duration>>,
    /// Number of snapshots that were begun.
    pub(super) begun: AtomicU64,
    /// Notified when a watch begins.
    pub(super) wanted: Notify,
}

impl<R: PluginRunner> Clusters<R> {
    /// Keeps the watched snapshot current, and records changes of the hub. Returns only if no snapshot can be made.
    pub async fn run(&self) {
        let mut hubs = self.shared.fleet.hub_states();
        let noting = async {
            loop {
                self.shared.hub();
                // Never an error: `fleet` holds the sender.
                drop(hubs.changed().await);
            }
        };
        tokio::select! {
            () = noting => {}
            () = self.keep_current() => {}
        }
    }

    async fn keep_current(&self) {
        let Shared { fleet, snapshots, wanted, .. } = &*self.shared;
        let (mut revisions, mut hubs) = (fleet.revisions(), fleet.hub_states());
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if snapshots.receiver_count() == 0 {
                self.forget().await;
                wanted.notified().await;
            }
            revisions.mark_unchanged();
            hubs.mark_unchanged();
            if self.make(None).await.is_none() {
                return;
            }
            let changed = async {
                // Never an error: `fleet` holds both senders.
                tokio::select! {
                    changed = revisions.changed() => drop(changed),
                    changed = hubs.changed() => drop(changed),
                }
                sleep(GATHER).await;
            };
            tokio::select! {
                () = changed => {}
                _ = look.tick() => {}
            }
        }
    }

    /// Returns a snapshot that was begun after this call, or at most `max_age` before it. `None`: the runtime ends, or
    /// making the snapshot panicked.
    pub(super) async fn make(&self, max_age: Option<Duration>) -> Option<Arc<Snapshot>> {
        let Shared { fleet, clock, snapshots, making, begun, .. } = &*self.shared;
        let earlier = begun.load(Ordering::Acquire);
        let mut made = making.lock().await;
        let is_fresh = match (max_age, *made) {
            (Some(max_age), Some(at)) => clock.now().boot.saturating_sub(at) <= max_age,
            (None, Some(_)) => begun.load(Ordering::Acquire) > earlier,
            (_, None) => false,
        };
        if is_fresh {
            return Some(Arc::clone(&snapshots.borrow()));
        }
        begun.fetch_add(1, Ordering::AcqRel);
        let at = clock.now().boot;
        let before = Arc::clone(&snapshots.borrow());
        let (cache, resolver, fleet) =
            (self.shared.cache.clone(), Arc::clone(&self.shared.resolver), Arc::clone(fleet));
        let shared = Arc::clone(&self.shared);
        let next = spawn_blocking(move || {
            let hub = shared.hub();
            let readiness = Readiness::of(&cache, &resolver);
            Snapshot::next(&before, fleet.list(None), hub, &readiness)
        });
        let next = Arc::new(next.await.ok()?);
        // Set only after success: a cancelled call must not mark a snapshot as made.
        *made = Some(at);
        snapshots.send_if_modified(|current| {
            let is_news = next.number() != current.number();
            *current = Arc::clone(&next);
            is_news
        });
        Some(next)
    }

    /// Drops the encoded messages if there are no watchers.
    async fn forget(&self) {
        let mut made = self.shared.making.lock().await;
        let snapshots = &self.shared.snapshots;
        if snapshots.receiver_count() == 0 {
            *made = None;
            let number = snapshots.borrow().number();
            snapshots.send_replace(Arc::new(Snapshot::empty(number)));
        }
    }
}

impl<R> Shared<R> {
    /// The state of the hub now.
    pub(super) fn hub(&self) -> TimedHubState {
        self.history.observe(self.fleet.hub(), self.clock.now().wall)
    }
}
