//! One watch of the fleet.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use futures_util::{Stream, stream::unfold};
use tokio::sync::watch;
use tonic::Status;

use super::{
    super::{
        access::{Access, Policies},
        status,
    },
    snapshot::{DiffPosition, NotEncoded, ShownView, Snapshot},
};
use credbroker_plugin::access::{Rights, Verb};
use credbroker_uds_server::WatchSlot;

/// The stream type of the generated service. The actual messages are frames that were encoded once for all watches.
pub(crate) type ClusterMessages =
    Pin<Box<dyn Stream<Item = Result<pb::WatchClustersResponse, Status>> + Send>>;

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
pub(super) fn messages(
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
                    Err(NotEncoded { is_defect: true }) => return Some(Err(status::defect())),
                    Err(NotEncoded { is_defect: false }) => return None,
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
