//! Kubeconfigs: their files, the clusters of their contexts, their users as providers, and the shim in front of these.

mod brokered;
mod clusters;
mod context_digest;
mod contexts;
mod edit;
mod files;
mod stored;
mod users;

pub use brokered::{Brokered, Shim, brokered, is_shim, with_shim};
pub use clusters::ContextError;
pub use contexts::{OwnContext, own_contexts, stored_context};
pub use edit::{Edited, Refusal, broker, restore};
pub use files::{KubeFile, Kubeconfig, Mode, Named, extension, yaml};
pub(super) use users::variables;
pub use users::{Definitions, HubKubeconfig, definitions};

#[cfg(test)]
mod tests;
