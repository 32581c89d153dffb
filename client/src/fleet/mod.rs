//! The clusters of the fleet, always as the broker knows them now.

pub(crate) mod clusters;
mod event;
mod view;

pub use clusters::Clusters;
pub use event::ClusterEvent;
pub use view::ContextMap;
