//! From configuration and a request to one immutable plugin invocation.

mod command;
mod environment;
mod globs;
mod key;
mod nearest;
mod provider;
mod providers;
mod spec;

pub use command::Command;
pub use environment::{Environment, from_caller, identity_variables, is_denied};
pub use globs::Globs;
pub use key::PluginKey;
pub use nearest::nearest;
pub use provider::Provider;
pub use providers::{Ask, Providers, ResolveError};
pub use spec::{Executable, PluginSpec};
