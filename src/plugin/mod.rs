//! From configuration and a request to one immutable plugin invocation.

mod command;
mod environment;
mod error;
mod key;
mod nearest;
mod provider;
mod providers;
mod spec;

pub use command::{Command, find_in_path};
pub use credbroker_proto::Globs;
pub use environment::{Environment, from_caller, identity_variables, is_denied};
pub use error::ResolveError;
pub use key::PluginKey;
pub use nearest::nearest;
pub use provider::Provider;
#[cfg(test)]
pub(crate) use provider::tests::provider as test_provider;
pub use providers::{Ask, Providers};
pub use spec::{Executable, PluginSpec};
