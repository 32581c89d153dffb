//! Lists and watches of the fleet's clusters.
//!
//! Watchers share their messages. A task makes a [`Snapshot`] when the fleet or the hub changes. While watches exist,
//! it also makes one every second, because changes of credentials send no notification. Each watch remembers which
//! snapshot its peer has, and a message is encoded once for all peers that have the same one.

mod hub;
mod snapshot;
mod watching;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use credbroker_proto::v1 as pb;
use tokio::{
    sync::{Mutex, Notify, OwnedSemaphorePermit, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};
use tonic::{Response, Status};

use self::{
    hub::{HubHistory, TimedHubState},
    snapshot::{Snapshot, View},
};
use super::{
    access::Access,
    convert,
    paging::{self, Paging},
    preencoded::Preencoded,
    readiness::Readiness,
    status,
};
use crate::{
    access::Rights, cache::CredentialCache, clock::Clock, exec::PluginRunner, fleet::Fleet,
    plugin::ProfileName, resolver::Resolver,
};

pub(super) use watching::ClusterMessages;

/// Bytes of clusters per message. Many clients accept at most 4 MiB, and a slow reader holds one message in memory.
const MESSAGE: usize = 256 * 1024;
/// Interval between snapshots while there are watches: changes of credentials send no notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay after a change, so that changes close together share one message.
const GATHER: Duration = Duration::from_millis(50);

/// The fleet as its readers see it. Clones share it.
#[derive(Debug)]
pub struct Clusters<R> {
    shared: Arc<Shared<R>>,
}

impl<R> Clone for Clusters<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<R> {
    fleet: Arc<Fleet>,
    resolver: Arc<Resolver>,
    cache: CredentialCache<R>,
    clock: Arc<dyn Clock>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    history: HubHistory,
    /// Time since boot at which the newest snapshot was begun. The lock ensures that one is made at a time.
    making: Mutex<Option<Duration>>,
    /// Number of snapshots that were begun.
    begun: AtomicU64,
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
        let (making, begun, wanted) = (Mutex::new(None), AtomicU64::new(0), Notify::new());
        let history = HubHistory::default();
        Self {
            shared: Arc::new(Shared {
                fleet,
                resolver,
                cache,
                clock,
                snapshots,
                history,
                making,
                begun,
                wanted,
            }),
        }
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

    /// The state of the hub now.
    pub(super) fn hub(&self) -> pb::HubState {
        self.shared.hub().message()
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

    /// One page of the list.
    pub(super) async fn page(
        &self,
        request: pb::ListClustersRequest,
        rights: Arc<Rights>,
    ) -> Result<pb::ListClustersResponse, Status> {
        let pb::ListClustersRequest { namespace, page_size, page_token } = request;
        let (paging, after) = Paging::read("clusters", &namespace, MESSAGE, page_size, &page_token)?;
        let after = match after {
            None => None,
            Some(position) => {
                let (namespace, name) = position.split_once('/').ok_or_else(paging::foreign)?;
                Some(ProfileName::new(namespace, name))
            }
        };
        // The first page is current, also after a refresh or an evict. The others follow soon and may be a second old.
        let snapshot = self.make(after.as_ref().map(|_| LOOK_EVERY)).await.ok_or_else(status::draining)?;
        let view = View { namespace: namespace.as_deref(), rights: &rights };
        let rows = snapshot.after(after.as_ref(), view);
        let rows = rows.map(|row| (row.message(&rights), row.name()));
        let (clusters, next_page_token) = paging.fill(rows, ToString::to_string);
        Ok(pb::ListClustersResponse { clusters, next_page_token, hub: Some(snapshot.hub()) })
    }

    /// Sends the current clusters, then changes.
    pub(super) async fn follow(
        &self,
        namespace: Option<String>,
        access: Arc<Access>,
        slot: OwnedSemaphorePermit,
    ) -> Response<ClusterMessages> {
        let snapshots = self.shared.snapshots.subscribe();
        self.shared.wanted.notify_one();
        // Later changes are sent as changes.
        self.make(Some(LOOK_EVERY)).await;
        Preencoded::response(watching::messages(snapshots, namespace, access, slot))
    }

    /// Returns a snapshot that was begun after this call, or at most `max_age` before it. `None`: the runtime ends, or
    /// making the snapshot panicked.
    async fn make(&self, max_age: Option<Duration>) -> Option<Arc<Snapshot>> {
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
    fn hub(&self) -> TimedHubState {
        self.history.observe(self.fleet.hub(), self.clock.now().wall)
    }
}

#[cfg(test)]
mod tests;
