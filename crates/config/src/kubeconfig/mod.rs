//! Kubeconfigs: their files, the clusters of their contexts, and their users as providers.

mod clusters;
mod files;
mod users;

pub use clusters::ContextError;
pub use files::{INJECTED, KubeFile, Kubeconfig, Mode, Named, extension};
pub(super) use users::variables;
pub use users::{Definitions, HubSource, definitions, is_shim};

#[cfg(test)]
mod tests;
