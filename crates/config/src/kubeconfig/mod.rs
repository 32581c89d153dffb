//! Kubeconfigs: their files, the clusters of their contexts, their users as providers, and the shim in front of these.

mod brokered;
mod clusters;
mod edit;
mod files;
mod users;
mod yaml;

pub use brokered::{Brokered, Shim, brokered, is_shim, with_shim};
pub use clusters::ContextError;
pub use edit::{Edited, Refusal, broker, restore};
pub use files::{KubeFile, Kubeconfig, Mode, Named, extension};
pub(super) use users::variables;
pub use users::{Definitions, HubSource, definitions};
pub use yaml::yaml;

#[cfg(test)]
mod tests;
