//! Configured plugins, and how a request becomes one invocation of a plugin. Pure: no process, file or network.
//!
//! A [`Provider`] is one configured plugin, and [`Providers`] are all of a configuration. A request names one of them or a
//! ClusterProfile, which [`cluster_profile`] resolves to a [`Target`]. Both lead to a [`Route`], which checks what the caller
//! sent and gives the [`PluginKey`] of its credential, and the [`PluginSpec`] of the run that issues it. [`access`] decides
//! who may request what.

pub mod access;
pub mod cluster_profile;
mod clusters;
mod context;
mod definition;
mod environment;
mod error;
mod file;
mod identity;
mod key;
mod profile;
mod provider;
mod providers;
mod route;
mod spec;
mod stored;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod variables;

pub use clusters::{difference, verifiable_at};
pub use context::{Context, ContextId, ContextTarget};
pub use credbroker_credential::Sha256;
pub use credbroker_proto::Globs;
pub use definition::{Definition, ProviderRef};
pub use environment::{Environment, Origin, Session};
pub use error::{ProviderProblem, ResolveError};
pub use file::{
    Command, Executable, FileError, FileIdentity, FileQuery, FoundFile, PluginFile, PluginPolicy, Refusal,
    cleaned,
};
pub use identity::{Identities, IdentityFiles};
pub use key::{IdPart, PartKind, PartOrigin, PluginKey};
pub use profile::{ProfileError, ProfileName};
pub use provider::{
    ClusterInfo, EnvPolicy, Interactive, Issuer, ProfileSourced, Provider, ProviderState, Retirement, Sandbox,
};
pub use providers::{Entry, ProviderChanges, ProviderUpdate, Providers};
pub use route::{Route, Sent};
pub use spec::{PluginSpec, Target};
pub use stored::{StoredCredential, StoredValue};
pub use variables::{identity_variables, is_denied, may_select_identity, selects_account};
