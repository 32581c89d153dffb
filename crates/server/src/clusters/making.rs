//! Makes the snapshots that all readers share.

use std::{
    sync::{
        Arc, Mutex as StdMutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, Notify, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};
use tonic::Status;

use super::snapshot::{Snapshot, TimedHubState};
use crate::{readiness::Readiness, status};
use credbroker_cache::CredentialCache;
use credbroker_fleet::{Fleet, HubState, resolver::Resolver};
use credbroker_observe::clock::Clock;
use credbroker_runner::PluginRunner;

/// Interval between snapshots while there are watches: changes of credentials send no notification.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay after a change, so that changes close together share one message.
pub(super) const GATHER: Duration = Duration::from_millis(50);

/// How new a snapshot must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Freshness {
    /// Begun after the call.
    New,
    /// With all changes before the call, except those that time alone causes: they may be a second late.
    Current,
    /// Begun at most a second before the call.
    Recent,
}

/// When a snapshot was begun, in time since boot, and what it shows: the revisions of the profiles and of the credentials,
/// and the hub.
type SnapshotBasis = (Duration, (u64, u64, HubState));

/// The fleet as its readers see it.
#[derive(Debug)]
pub struct Clusters<R> {
    pub(super) fleet: Arc<Fleet>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) cache: CredentialCache<R>,
    clock: Arc<dyn Clock>,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    /// The state of the hub when it was last looked at.
    hub: StdMutex<TimedHubState>,
    /// The lock ensures that one snapshot is made at a time.
    making: Mutex<Option<SnapshotBasis>>,
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
        Self {
            fleet,
            resolver,
            cache,
            clock,
            snapshots: watch::Sender::new(Arc::default()),
            hub: StdMutex::default(),
            making: Mutex::default(),
            begun: AtomicU64::new(0),
            wanted: Notify::new(),
        }
    }

    /// The newest snapshot, and each that follows it. It is kept current while there are readers.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        let snapshots = self.snapshots.subscribe();
        self.wanted.notify_one();
        snapshots
    }

    /// Keeps the watched snapshot current, and records changes of the hub. Returns only if no snapshot can be made.
    pub async fn run(self: &Arc<Self>) {
        let mut hubs = self.fleet.hub_states();
        let noting = async {
            loop {
                self.hub();
                // Never an error: `fleet` holds the sender.
                drop(hubs.changed().await);
            }
        };
        tokio::select! {
            () = noting => {}
            () = self.keep_current() => {}
        }
    }

    async fn keep_current(self: &Arc<Self>) {
        let (mut revisions, mut hubs) = (self.fleet.revisions(), self.fleet.hub_states());
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.snapshots.receiver_count() == 0 {
                self.forget().await;
                self.wanted.notified().await;
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

    /// Returns the newest snapshot if it is new enough, otherwise a new one.
    pub(super) async fn make(self: &Arc<Self>, freshness: Freshness) -> Result<Arc<Snapshot>, Status> {
        let earlier = self.begun.load(Ordering::Acquire);
        let mut made = self.making.lock().await;
        let is_fresh = made.as_ref().is_some_and(|last| match freshness {
            // Another caller made one meanwhile.
            _ if self.begun.load(Ordering::Acquire) > earlier => true,
            Freshness::New => false,
            Freshness::Current => self.is_current(last),
            Freshness::Recent => self.age(last) <= LOOK_EVERY,
        });
        if is_fresh {
            return Ok(Arc::clone(&self.snapshots.borrow()));
        }
        if let (Freshness::Current, Some(last)) = (freshness, &*made) {
            // Not more than one each [`GATHER`], however many callers there are.
            sleep(GATHER.saturating_sub(self.age(last))).await;
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        // Before anything is read.
        let basis = (self.clock.now().boot, self.shown());
        let (this, before) = (Arc::clone(self), Arc::clone(&self.snapshots.borrow()));
        let next = spawn_blocking(move || {
            let readiness = Readiness::of(&this.cache, &this.resolver);
            Snapshot::next(&before, this.fleet.list(None), this.hub(), &readiness)
        });
        let next = Arc::new(next.await.map_err(|error| status::unfinished_work(&error))?);
        // Set only after success: a cancelled call must not mark a snapshot as made.
        *made = Some(basis);
        self.snapshots.send_if_modified(|current| {
            let is_news = next.number() != current.number();
            *current = Arc::clone(&next);
            is_news
        });
        Ok(next)
    }

    /// Drops the encoded messages if there are no watchers.
    async fn forget(&self) {
        let mut made = self.making.lock().await;
        if self.snapshots.receiver_count() == 0 {
            *made = None;
            let empty = self.snapshots.borrow().empty();
            self.snapshots.send_replace(Arc::new(empty));
        }
    }

    /// What a snapshot shows that is begun now.
    fn shown(&self) -> (u64, u64, HubState) {
        (self.fleet.revision(), self.cache.changes(), self.fleet.hub())
    }

    fn is_current(&self, last: &SnapshotBasis) -> bool {
        self.age(last) <= LOOK_EVERY && last.1 == self.shown()
    }

    fn age(&self, (begun, _): &SnapshotBasis) -> Duration {
        self.clock.now().boot.saturating_sub(*begun)
    }

    /// The state of the hub now.
    pub(crate) fn hub(&self) -> TimedHubState {
        let mut last = self.hub.lock().unwrap_or_else(PoisonError::into_inner);
        last.observe(self.fleet.hub(), self.clock.now().wall);
        last.clone()
    }
}
