//! One watch of the fleet.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use futures_util::{Stream, stream::unfold};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::Status;

use super::snapshot::{DiffPosition, Snapshot};

/// The generated service's type for the messages of one watch. They are sent as they were encoded for all.
pub(in crate::server) type ClusterMessages =
    Pin<Box<dyn Stream<Item = Result<pb::WatchClustersResponse, Status>> + Send>>;

/// What one watch remembers.
struct ClusterStream {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    namespace: Option<String>,
    /// What the peer has.
    known: Option<Arc<Snapshot>>,
    /// What it is being sent, and how far that went.
    sending: Option<(Arc<Snapshot>, DiffPosition)>,
    _slot: OwnedSemaphorePermit,
}

/// The clusters now, then what changes: framed messages, made when the peer can take one, so that a slow reader gets
/// the latest when it returns.
pub(super) fn messages(
    snapshots: watch::Receiver<Arc<Snapshot>>,
    namespace: Option<String>,
    slot: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    let following = ClusterStream { snapshots, namespace, known: None, sending: None, _slot: slot };
    unfold(following, async |mut following| Some((Ok(following.next().await?), following)))
}

impl ClusterStream {
    /// `None` when the fleet is no longer read: the broker ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some((newer, at)) = self.sending.take() {
                let page = newer.news(self.known.as_deref(), self.namespace.as_deref(), at);
                match page.rest {
                    Some(rest) => self.sending = Some((newer, rest)),
                    None => self.known = Some(newer),
                }
                if page.frame.is_some() {
                    return page.frame;
                }
                continue;
            }
            let newest = Arc::clone(&self.snapshots.borrow_and_update());
            if self.known.as_ref().is_none_or(|known| known.number() != newest.number()) {
                self.sending = Some((newest, DiffPosition::default()));
            } else {
                self.snapshots.changed().await.ok()?;
            }
        }
    }
}
