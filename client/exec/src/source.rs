//! Which credential is requested.

use std::fmt;

use credbroker_client::{ClusterProfileRef, CredentialRef};

/// What issues the requested credential. `Display` names it for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A provider.
    Provider {
        /// Its name.
        name: String,
        /// Digest of what its stanza runs. `None`: the only provider of that name.
        definition: Option<String>,
    },
    /// The provider of a `ClusterProfile`.
    ClusterProfile(ClusterProfileRef),
    /// A context of a kubeconfig, whose user has a credential without a plugin.
    Context {
        /// Its name.
        name: String,
        /// Digest of its definition.
        digest: String,
    },
}

impl From<Source> for CredentialRef {
    fn from(source: Source) -> Self {
        match source {
            Source::Provider { name, definition: None } => Self::provider(name),
            Source::Provider { name, definition: Some(definition) } => {
                Self::provider_definition(name, definition)
            }
            Source::ClusterProfile(profile) => profile.into(),
            Source::Context { name, digest } => Self::context(name, digest),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider { name, .. } => write!(f, "provider {name}"),
            Self::ClusterProfile(profile) => write!(f, "ClusterProfile {profile}"),
            Self::Context { name, .. } => write!(f, "context {name}"),
        }
    }
}
