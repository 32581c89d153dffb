//! Lists and watches of the fleet's clusters.
//!
//! Watchers share their messages. A task makes a [`Snapshot`] when the fleet or the hub changes. While watches exist,
//! it also makes one every second, because changes of credentials send no notification. Each watch remembers which
//! snapshot its peer has, and a message is encoded once for all peers that have the same one. Lists show the newest
//! snapshot; they make one only if something has changed since.

mod making;
mod snapshot;

use std::sync::Arc;

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use futures_util::{Stream, stream::unfold};
use tokio::sync::watch;
use tonic::{Response, Status};

use self::{
    making::Freshness,
    snapshot::{DiffPosition, MESSAGE, NotMade, ShownView, Snapshot, View},
};
use crate::{
    access::{Access, Policies},
    paging::{self, Paging},
    preencoded::{MessageStream, Preencoded},
    status,
};
use credbroker_plugin::{
    ProfileName,
    access::{Rights, Verb},
};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::WatchSlot;

pub use making::Clusters;

impl<R: PluginRunner> Clusters<R> {
    /// One page of the list.
    pub(crate) async fn page(
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
            NotMade::Defect => status::defect(),
            NotMade::Ending => status::draining(),
        })?;
        let view = View { namespace: namespace.as_deref(), rights: &rights };
        let rows = snapshot.after(after.as_ref(), view);
        let rows = rows.map(|row| (row.message(&rights), row.name()));
        let (clusters, next_page_token) = paging.fill(rows, ToString::to_string);
        Ok(pb::ListClustersResponse { clusters, next_page_token, hub: Some(snapshot.hub()) })
    }

    /// Sends the current clusters, then changes.
    pub(crate) async fn follow(
        &self,
        namespace: Option<String>,
        access: Arc<Access>,
        slot: WatchSlot,
    ) -> Response<MessageStream<pb::WatchClustersResponse>> {
        let snapshots = self.subscribe();
        // Later changes are sent as changes. Without a snapshot, the task that makes them has ended too.
        drop(self.make(Freshness::Recent).await);
        Preencoded::response(messages(snapshots, namespace, access, slot))
    }
}

/// The state of one watch.
struct ClusterStream {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    namespace: Option<Arc<str>>,
    access: Arc<Access>,
    /// Notified when the access rules change.
    policies: Policies,
    rights: Arc<Rights>,
    /// The snapshot that the peer has, and the rights that it was shown under.
    known: Option<(Arc<Snapshot>, Arc<Rights>)>,
    /// The snapshot that is being sent, and the position of its next message.
    sending: Option<(Arc<Snapshot>, DiffPosition)>,
    _slot: WatchSlot,
}

/// Sends the current clusters, then changes, as encoded frames. A frame is made when the peer can take it, so a slow
/// reader gets the newest state.
fn messages(
    snapshots: watch::Receiver<Arc<Snapshot>>,
    namespace: Option<String>,
    access: Arc<Access>,
    slot: WatchSlot,
) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    // Before the rights are read: a change in between is not lost.
    let policies = access.changes();
    let rights = access.rights();
    let following = ClusterStream {
        snapshots,
        namespace: namespace.map(Arc::from),
        access,
        policies,
        rights,
        known: None,
        sending: None,
        _slot: slot,
    };
    unfold(Some(following), async |following| {
        let mut following = following?;
        match following.next().await? {
            Ok(message) => Some((Ok(message), Some(following))),
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl ClusterStream {
    /// `None`: the broker stops, so there are no further snapshots.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some((newer, at)) = self.sending.take() {
                let shown = ShownView { namespace: self.namespace.clone(), rights: Arc::clone(&self.rights) };
                let page = match newer.news(self.known.clone(), &shown, at).await {
                    Ok(page) => page,
                    Err(NotMade::Defect) => return Some(Err(status::defect())),
                    Err(NotMade::Ending) => return None,
                };
                match page.rest {
                    Some(rest) => self.sending = Some((newer, rest)),
                    None => self.known = Some((newer, Arc::clone(&self.rights))),
                }
                if let Some(frame) = page.frame {
                    return Some(Ok(frame));
                }
                continue;
            }
            // Between two snapshots, because all messages of one are for the same rights.
            if self.policies.has_changed().is_ok_and(|changed| changed) {
                self.policies.mark_unchanged();
                self.rights = match self.access.need(Verb::List) {
                    Ok(rights) => rights,
                    Err(status) => return Some(Err(status)),
                };
            }
            let newest = Arc::clone(&self.snapshots.borrow_and_update());
            let is_current = |(known, rights): &(Arc<Snapshot>, Arc<Rights>)| {
                known.number() == newest.number() && rights.view() == self.rights.view()
            };
            if !self.known.as_ref().is_some_and(is_current) {
                self.sending = Some((newest, DiffPosition::default()));
                continue;
            }
            tokio::select! {
                changed = self.snapshots.changed() => changed.ok()?,
                Ok(()) = self.policies.changed() => self.policies.mark_changed(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
