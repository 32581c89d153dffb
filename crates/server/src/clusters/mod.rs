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
use tokio::sync::watch;
use tonic::{Response, Status};

use self::{
    making::Freshness,
    snapshot::{DiffPosition, MESSAGE, Snapshot, View},
};
use crate::{
    access::{Access, Policies},
    paging::Paging,
    preencoded::{Follow, MessageStream},
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
        self: &Arc<Self>,
        request: pb::ListClustersRequest,
        rights: Arc<Rights>,
    ) -> Result<pb::ListClustersResponse, Status> {
        let pb::ListClustersRequest { namespace, page_size, page_token } = request;
        let (paging, after) = Paging::read("clusters", &namespace, MESSAGE, page_size, &page_token)?;
        let after = after.map(|(namespace, name): (String, String)| ProfileName::new(namespace, name));
        // The first page is current, also after a refresh or an evict. The others follow soon and may be a second old.
        let snapshot =
            self.make(if after.is_none() { Freshness::Current } else { Freshness::Recent }).await?;
        let view = View { namespace: namespace.map(Arc::from), rights };
        let rows = snapshot.after(after.as_ref(), &view);
        let rows = rows.map(|row| (row.message(&view.rights), (&*row.name().namespace, &*row.name().name)));
        let (clusters, next_page_token) = paging.fill(rows);
        Ok(pb::ListClustersResponse { clusters, next_page_token, hub: Some(snapshot.hub()) })
    }

    /// Sends the current clusters, then changes.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        namespace: Option<String>,
        access: Arc<Access>,
        slot: WatchSlot,
    ) -> Response<MessageStream<pb::WatchClustersResponse>> {
        let snapshots = self.subscribe();
        // Later changes are sent as changes. Without a snapshot, the task that makes them has ended too.
        drop(self.make(Freshness::Recent).await);
        // Before the rights are read: a change in between is not lost.
        let policies = access.changes();
        let view = View { namespace: namespace.map(Arc::from), rights: access.rights() };
        let (known, sending) = (None, None);
        ClusterStream { snapshots, view, access, policies, known, sending, _slot: slot }.response()
    }
}

/// The state of one watch.
struct ClusterStream {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    view: View,
    access: Arc<Access>,
    /// Notified when the access rules change.
    policies: Policies,
    /// The snapshot that the peer has, and the view that it was shown in.
    known: Option<(Arc<Snapshot>, View)>,
    /// The snapshot that is being sent, and the position of its next message.
    sending: Option<(Arc<Snapshot>, DiffPosition)>,
    _slot: WatchSlot,
}

impl Follow for ClusterStream {
    /// `None`: the broker stops, so there are no further snapshots.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some((newer, at)) = self.sending.take() {
                let page = match newer.news(self.known.clone(), &self.view, at).await {
                    Ok(page) => page,
                    Err(status) => return Some(Err(status)),
                };
                match page.rest {
                    Some(rest) => self.sending = Some((newer, rest)),
                    None => self.known = Some((newer, self.view.clone())),
                }
                if let Some(frame) = page.frame {
                    return Some(Ok(frame));
                }
                continue;
            }
            // Between two snapshots, because all messages of one are for the same rights.
            if self.policies.has_changed().is_ok_and(|changed| changed) {
                self.policies.mark_unchanged();
                self.view.rights = match self.access.need(Verb::List) {
                    Ok(rights) => rights,
                    Err(status) => return Some(Err(status)),
                };
            }
            let newest = Arc::clone(&self.snapshots.borrow_and_update());
            let is_current = |(known, had): &(Arc<Snapshot>, View)| {
                known.number() == newest.number() && had.rights.view == self.view.rights.view
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
