//! Changes of the fleet.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;
use futures_util::{StreamExt, stream::BoxStream};

use crate::cluster_state::ClusterState;

/// A change of one cluster. Changes that come together are one event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// The cluster is new.
    Added(Arc<ClusterState>),
    /// Its endpoint, its readiness or a description has changed.
    Changed(Arc<ClusterState>),
    /// It is no longer in the fleet. The state is the last one.
    Removed(Arc<ClusterState>),
}

/// The events of the fleet: first one for each cluster that exists, then the changes. It never ends.
pub struct ClusterEvents(BoxStream<'static, ClusterEvent>);

impl ClusterEvents {
    pub(super) fn new(events: impl Stream<Item = ClusterEvent> + Send + 'static) -> Self {
        Self(events.boxed())
    }
}

impl Stream for ClusterEvents {
    type Item = ClusterEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for ClusterEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEvents").finish_non_exhaustive()
    }
}
