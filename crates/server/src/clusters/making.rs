//! Makes the snapshots that all readers share.

use std::{
    sync::{
        Arc, Mutex as StdMutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use credbroker_proto::v1 as pb;
use tokio::{
    sync::{Mutex, Notify, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};

use super::snapshot::{NotMade, Snapshot, TimedHubState};
use crate::readiness::Readiness;
use credbroker_cache::CredentialCache;
use credbroker_fleet::{Fleet, HubState, resolver::Resolver};
use credbroker_observe::clock::Clock;
use credbroker_runner::PluginRunner;

/// Interval between snapshots while there are watches: changes of credentials send no notification.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay after a change, so that changes close together share one message.
pub(super) const GATHER: Duration = Duration::from_millis(50);

/// The fleet as its readers see it. Clones share it.
#[derive(Debug)]
pub struct Clusters<R> {
    pub(super) shared: Arc<Shared<R>>,
}

impl<R> Clone for Clusters<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// How new a snapshot must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Freshness {
    /// Begun after the call.
    New,
    /// With all changes before the call, except those that time alone causes: they may be a second late.
    Current,
    /// Begun at most a second before the call.
    Recent,
}

/// What a snapshot shows.
#[derive(Debug, Eq, PartialEq)]
struct SnapshotBasis {
    profiles: u64,
    credentials: u64,
    hub: HubState,
}

/// When the newest snapshot was begun, in time since boot, and what it shows.
#[derive(Debug)]
pub(super) struct LastSnapshot {
    at: Duration,
    basis: SnapshotBasis,
}

/// What all readers share.
#[derive(Debug)]
pub(super) struct Shared<R> {
    pub(super) fleet: Arc<Fleet>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) cache: CredentialCache<R>,
    clock: Arc<dyn Clock>,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    /// The state of the hub when it was last looked at.
    hub: StdMutex<TimedHubState>,
    /// The lock ensures that one snapshot is made at a time.
    making: Mutex<Option<LastSnapshot>>,
    /// Number of snapshots that were begun.
    pub(super) begun: AtomicU64,
    /// Notified when a watch begins.
    wanted: Notify,
}

impl<R: PluginRunner> Clusters<R> {
    /// Creates the readers of `fleet`. `cache` and `resolver` provide the readiness of each cluster.
    pub fn new(
        fleet: Arc<Fleet>,
        resolver: Arc<Resolver>,
        cache: CredentialCache<R>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let snapshots = watch::Sender::new(Arc::new(Snapshot::default()));
        let (hub, making, begun, wanted) =
            (StdMutex::default(), Mutex::new(None), AtomicU64::new(0), Notify::new());
        let shared = Shared { fleet, resolver, cache, clock, snapshots, hub, making, begun, wanted };
        Self { shared: Arc::new(shared) }
    }

    /// The newest snapshot, and each that follows it. It is kept current while there are readers.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        let snapshots = self.shared.snapshots.subscribe();
        self.shared.wanted.notify_one();
        snapshots
    }

    /// The state of the hub now.
    pub(crate) fn hub(&self) -> pb::HubState {
        self.shared.hub().message()
    }

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
            if self.make(Freshness::New).await.is_err() {
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

    /// The newest snapshot if nothing has changed, otherwise a new one; but not more than one each [`GATHER`], however many
    /// callers there are.
    pub(super) async fn current(&self) -> Result<Arc<Snapshot>, NotMade> {
        let pause = {
            let made = self.shared.making.lock().await;
            match &*made {
                Some(last) if !self.shared.is_current(last) => GATHER.saturating_sub(self.shared.age(last)),
                _ => Duration::ZERO,
            }
        };
        if !pause.is_zero() {
            sleep(pause).await;
        }
        self.make(Freshness::Current).await
    }

    /// Returns the newest snapshot if it is new enough, otherwise a new one.
    pub(super) async fn make(&self, freshness: Freshness) -> Result<Arc<Snapshot>, NotMade> {
        let Shared { fleet, clock, snapshots, making, begun, .. } = &*self.shared;
        let earlier = begun.load(Ordering::Acquire);
        let mut made = making.lock().await;
        let is_fresh = made.as_ref().is_some_and(|last| match freshness {
            // Another caller made one meanwhile.
            _ if begun.load(Ordering::Acquire) > earlier => true,
            Freshness::New => false,
            Freshness::Current => self.shared.is_current(last),
            Freshness::Recent => self.shared.age(last) <= LOOK_EVERY,
        });
        if is_fresh {
            return Ok(Arc::clone(&snapshots.borrow()));
        }
        begun.fetch_add(1, Ordering::AcqRel);
        // Before anything is read.
        let (at, basis) = (clock.now().boot, self.shared.basis());
        let before = Arc::clone(&snapshots.borrow());
        let (cache, resolver, fleet) =
            (self.shared.cache.clone(), Arc::clone(&self.shared.resolver), Arc::clone(fleet));
        let shared = Arc::clone(&self.shared);
        let next = spawn_blocking(move || {
            let hub = shared.hub();
            let readiness = Readiness::of(&cache, &resolver);
            Snapshot::next(&before, fleet.list(None), hub, &readiness)
        });
        let next = Arc::new(next.await?);
        // Set only after success: a cancelled call must not mark a snapshot as made.
        *made = Some(LastSnapshot { at, basis });
        snapshots.send_if_modified(|current| {
            let is_news = next.number() != current.number();
            *current = Arc::clone(&next);
            is_news
        });
        Ok(next)
    }

    /// Drops the encoded messages if there are no watchers.
    async fn forget(&self) {
        let mut made = self.shared.making.lock().await;
        let snapshots = &self.shared.snapshots;
        if snapshots.receiver_count() == 0 {
            *made = None;
            let empty = snapshots.borrow().empty();
            snapshots.send_replace(Arc::new(empty));
        }
    }
}

impl<R: PluginRunner> Shared<R> {
    fn basis(&self) -> SnapshotBasis {
        let (profiles, credentials) = (self.fleet.revision(), self.cache.changes());
        SnapshotBasis { profiles, credentials, hub: self.fleet.hub() }
    }

    fn is_current(&self, last: &LastSnapshot) -> bool {
        self.age(last) <= LOOK_EVERY && last.basis == self.basis()
    }
}

impl<R> Shared<R> {
    fn age(&self, last: &LastSnapshot) -> Duration {
        self.clock.now().boot.saturating_sub(last.at)
    }

    /// The state of the hub now.
    pub(super) fn hub(&self) -> TimedHubState {
        let mut last = self.hub.lock().unwrap_or_else(PoisonError::into_inner);
        last.observe(self.fleet.hub(), self.clock.now().wall);
        last.clone()
    }
}
