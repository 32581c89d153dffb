//! The `exec` stanza of a kubeconfig whose user requests its credential from credbroker.
//!
//! Such a stanza is the original one with the shim in front of its command:
//!
//! ```yaml
//! command: credbroker-exec
//! args: [--provider, prod, --api-version, v1, --env, AWS_PROFILE, --, aws, eks, get-token]
//! ```
//!
//! So undoing it is removing a prefix, which [`Prefix`] reads and writes. A [`Definition`] is what the stanza runs, and its
//! digest names it in a request: the shim computes it from its own arguments and environment, and the broker from the
//! kubeconfig. All of it is pure.

mod definition;
mod prefix;

pub use definition::Definition;
pub use prefix::{Prefix, PrefixError};
