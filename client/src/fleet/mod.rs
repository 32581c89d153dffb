//! The clusters of the fleet, always as the broker knows them now.

pub(crate) mod cluster_state;
pub(crate) mod clusters;
mod event;
mod view;

pub use cluster_state::{
    ClusterChanges, ClusterList, ClusterState, HubState, Property, Readiness, SkippedProvider,
};
pub use clusters::Clusters;
pub use event::{ClusterEvent, ClusterEvents};
