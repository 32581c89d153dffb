//! One watch of the fleet.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use futures_util::{Stream, stream::unfold};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::Status;

use super::snapshot::{DiffPosition, Snapshot};

/// The stream type of the generated service. The actual messages are frames that were encoded once for all watches.
pub(in crate::server) type ClusterMessages =
    Pin<Box<dyn Stream<Item = Result<pb::WatchClustersResponse, Status>> + Send>>;

/// The state of one watch.
struct ClusterStream {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    namespace: Option<String>,
    /// The snapshot that the peer has.
    known: Option<Arc<Snapshot>>,
    /// The snapshot that is being sent, and the position of its next message.
    sending: Option<(Arc<Snapshot>, DiffPosition)>,
    _slot: OwnedSemaphorePermit,
}

/// Sends the current clusters, then changes, as encoded frames. A frame is made when the peer can take it, so a slow
/// reader gets the newest state.
pub(super) fn messages(
    snapshots: watch::Receiver<Arc<Snapshot>>,
    namespace: Option<String>,
    slot: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Status>> + Send {
    let following = ClusterStream { snapshots, namespace, known: None, sending: None, _slot: slot };
    unfold(following, async |mut following| Some((Ok(following.next().await?), following)))
}

impl ClusterStream {
    /// `None`: the broker stops, so there are no further snapshots.
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
