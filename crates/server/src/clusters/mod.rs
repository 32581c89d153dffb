//! Lists and watches of the fleet's clusters.
//!
//! Watchers share their messages. A task makes a [`Snapshot`] when the fleet or the hub changes. While watches exist,
//! it also makes one every second, because changes of credentials send no notification. Each watch remembers which
//! snapshot its peer has, and a message is encoded once for all peers that have the same one. Lists show the newest
//! snapshot; they make one only if something has changed since.

mod hub;
mod making;
mod row;
mod snapshot;
mod watching;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use credbroker_proto::v1 as pb;
use tokio::sync::{Mutex, Notify, watch};
use tonic::{Response, Status};

use self::{
    hub::HubHistory,
    making::{Freshness, NoSnapshot, Shared},
    row::View,
    snapshot::Snapshot,
};
use super::{
    access::Access,
    convert,
    paging::{self, Paging},
    preencoded::Preencoded,
    status,
};
use credbroker_cache::CredentialCache;
use credbroker_fleet::{Fleet, resolver::Resolver};
use credbroker_observe::clock::Clock;
use credbroker_plugin::{ProfileName, access::Rights};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::WatchSlot;

pub(super) use watching::ClusterMessages;

/// Bytes of clusters per message. Many clients accept at most 4 MiB, and a slow reader holds one message in memory.
const MESSAGE: usize = 256 * 1024;
/// Interval between snapshots while there are watches: changes of credentials send no notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

    /// The state of the hub now.
    pub(super) fn hub(&self) -> pb::HubState {
        self.shared.hub().message()
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
        let snapshot = match after {
            None => self.current().await,
            Some(_) => self.make(Freshness::Recent).await,
        };
        let snapshot = snapshot.map_err(|cause| match cause {
            NoSnapshot::Defect => status::defect(),
            NoSnapshot::Ending => status::draining(),
        })?;
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
        slot: WatchSlot,
    ) -> Response<ClusterMessages> {
        let snapshots = self.shared.snapshots.subscribe();
        self.shared.wanted.notify_one();
        // Later changes are sent as changes. Without a snapshot, the task that makes them has ended too.
        drop(self.make(Freshness::Recent).await);
        Preencoded::response(watching::messages(snapshots, namespace, access, slot))
    }
}

#[cfg(test)]
mod tests;
