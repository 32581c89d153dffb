//! Changes of the fleet.

use std::sync::Arc;

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
