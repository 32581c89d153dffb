//! From configuration and a request to one immutable plugin invocation.

mod caller;
mod cluster_profile;
mod command;
mod definition;
mod environment;
mod error;
mod file;
mod fleet;
mod hub_state;
mod issuer;
mod key;
mod lead;
mod matching;
mod nearest;
mod provider;
mod providers;
mod resolver;
mod shown;
mod spec;
mod target;
mod variables;
mod verifiable;

pub use caller::Origin;
pub use cluster_profile::{
    AccessProvider, ArgsPolicy, ClusterProfile, EnvPolicy, ProfileError, ProfileName, ProfileSourced, Rules,
    Skipped,
};
pub use command::{Command, find_in_path};
pub use credbroker_proto::Globs;
pub use definition::{Definition, ProviderRef};
pub use environment::{Environment, identity_variables, is_denied};
pub use error::ResolveError;
pub use file::{Executable, FileError, FoundFile, PluginFile};
pub use fleet::{Change, Fleet};
pub use hub_state::HubState;
pub use issuer::Issuer;
pub use key::{KeyHasher, PluginKey};
pub use nearest::nearest;
#[cfg(test)]
pub(crate) use provider::tests::provider as test_provider;
pub use provider::{ClusterInfo, Provider, Verify};
pub use providers::Providers;
pub use resolver::{Ask, Resolver, Source};
pub use spec::PluginSpec;
pub use target::{Known, Target};
pub use verifiable::verifiable_at;
