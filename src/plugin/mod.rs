//! Configured plugins, and how a request becomes one invocation of a plugin.

mod caller;
mod command;
mod definition;
mod environment;
mod error;
mod file;
mod key;
mod lead;
mod matching;
mod pin;
mod policy;
mod profile;
mod provider;
mod providers;
mod refusal;
mod session;
mod spec;
mod standing;
mod succession;
mod target;
mod trust;
mod variables;
mod verifiable;

pub use caller::Origin;
pub use command::{Command, Executable, find_in_path};
pub use credbroker_proto::Globs;
pub use definition::{Definition, ProviderRef};
pub use environment::{Environment, identity_variables, is_denied};
pub use error::ResolveError;
pub use file::{FileError, FoundFile, PluginFile};
#[cfg(test)]
pub(crate) use key::RunDigest;
pub use key::{KeyHasher, KeyPart, PartKind, PartOrigin, PluginKey};
pub(crate) use lead::Lead;
pub(crate) use matching::difference;
pub use pin::Sha256;
pub use policy::{PluginPolicy, cleaned};
pub use profile::{ProfileError, ProfileName};
#[cfg(test)]
pub(crate) use provider::tests::provider as test_provider;
pub use provider::{
    ArgsPolicy, ClusterInfo, EnvPolicy, Interactive, Issuer, ProfileSourced, Provider, Sandbox, Verify,
};
pub(crate) use providers::Entry;
pub use providers::Providers;
pub use refusal::Refusal;
pub use session::Session;
pub use spec::PluginSpec;
pub use standing::{Retirement, Standing};
pub use succession::{ProviderChanges, Succession};
pub use target::Target;
pub use variables::is_known_danger;
pub use verifiable::verifiable_at;
