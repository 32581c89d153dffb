//! From configuration and a request to one immutable plugin invocation.

mod environment;
mod key;
mod provider;
mod spec;

pub use environment::{Environment, Globs};
pub use key::PluginKey;
pub use provider::{Command, Provider};
pub use spec::{Executable, PluginSpec};
