//! Names of credentials.

use std::{fmt, str::FromStr};

use credbroker_proto::v1::{self, ContextRef, ProviderRef, credential_ref::Source};
#[cfg(feature = "async")]
use prost::Message as _;

use crate::cluster::Cluster;

/// The name of a `ClusterProfile` object (multicluster.x-k8s.io).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize))]
pub struct ClusterProfileRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A text that is not `NAMESPACE/NAME`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected NAMESPACE/NAME")]
#[non_exhaustive]
pub struct ParseClusterProfileError;

/// Names one credential, with what the caller contributes to it.
///
/// `Debug` shows no value of the environment and nothing secret of the cluster.
///
/// ```
/// use credbroker_client::CredentialRef;
///
/// let prod = CredentialRef::provider("eks").env("AWS_PROFILE", "prod");
/// let paris = CredentialRef::cluster_profile("fleet", "paris");
/// assert!(!format!("{prod:?}").contains("prod"));
/// # drop(paris);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialRef(v1::CredentialRef);

impl ClusterProfileRef {
    /// The `ClusterProfile` of this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    #[cfg(feature = "async")]
    pub(crate) fn from_message(message: v1::ClusterProfileRef) -> Self {
        let v1::ClusterProfileRef { namespace, name } = message;
        Self { namespace, name }
    }

    pub(crate) fn into_message(self) -> v1::ClusterProfileRef {
        let Self { namespace, name } = self;
        v1::ClusterProfileRef { namespace, name }
    }
}

/// `NAMESPACE/NAME`.
impl fmt::Display for ClusterProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Reads `NAMESPACE/NAME`.
impl FromStr for ClusterProfileRef {
    type Err = ParseClusterProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/');
        parts
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
            .map(|(namespace, name)| Self::new(namespace, name))
            .ok_or(ParseClusterProfileError)
    }
}

impl CredentialRef {
    /// The credential of a provider, by its name.
    pub fn provider(name: impl Into<String>) -> Self {
        Self::of(Source::Provider(ProviderRef { name: name.into(), definition: None }))
    }

    /// The credential of one definition of the provider of this name. `definition` is the digest that `credbroker status -o
    /// json` lists. It is needed only if several providers have the name.
    pub fn provider_definition(name: impl Into<String>, definition: impl Into<String>) -> Self {
        Self::of(Source::Provider(ProviderRef { name: name.into(), definition: Some(definition.into()) }))
    }

    /// The credential of a `ClusterProfile` object.
    pub fn cluster_profile(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        ClusterProfileRef::new(namespace, name).into()
    }

    /// The credential of a context of a kubeconfig that the broker follows. `digest` is the digest of the context that
    /// `credbroker clusters --contexts` prints.
    pub fn context(name: impl Into<String>, digest: impl Into<String>) -> Self {
        Self::of(Source::Context(ContextRef { digest: digest.into(), name: name.into() }))
    }

    /// Adds a variable of the caller's environment. The broker uses it only if the provider's `callerEnv` names it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.env.insert(name.into(), value.into());
        self
    }

    /// Adds a variable that the caller sends only because its name looks like that of an account, such as `SCW_PROFILE`. A
    /// provider that does not take it ignores it.
    #[must_use]
    pub fn account_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.account_env.insert(name.into(), value.into());
        self
    }

    /// Adds the cluster that the credential is for. The broker passes it to a plugin with `provideClusterInfo`.
    #[must_use]
    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.0.cluster = Some(cluster.into_message());
        self
    }

    fn of(source: Source) -> Self {
        Self(v1::CredentialRef { source: Some(source), ..v1::CredentialRef::default() })
    }

    #[cfg(feature = "_messages")]
    pub(crate) fn from_message(message: v1::CredentialRef) -> Self {
        Self(message)
    }

    /// Equal references, and no others, have equal keys.
    #[cfg(feature = "async")]
    pub(crate) fn key(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }

    #[cfg(feature = "async")]
    pub(crate) fn message(&self) -> v1::CredentialRef {
        self.0.clone()
    }

    #[cfg(feature = "_blocking")]
    pub(crate) fn into_message(self) -> v1::CredentialRef {
        self.0
    }
}

impl From<ClusterProfileRef> for CredentialRef {
    fn from(profile: ClusterProfileRef) -> Self {
        Self::of(Source::ClusterProfile(profile.into_message()))
    }
}

/// What the reference names: `provider gke`, `cluster fleet/paris` or `context prod`.
impl fmt::Display for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            Some(Source::Provider(provider)) => write!(f, "provider {}", provider.name),
            Some(Source::ClusterProfile(profile)) => {
                write!(f, "cluster {}/{}", profile.namespace, profile.name)
            }
            Some(Source::Context(context)) => write!(f, "context {}", context.name),
            None => f.write_str("credential"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_profile_is_read_as_it_is_written() {
        let paris = ClusterProfileRef::new("fleet", "paris");
        assert_eq!(paris.to_string().parse(), Ok(paris));
        for text in ["paris", "/paris", "fleet/", "a/b/c", ""] {
            assert_eq!(text.parse::<ClusterProfileRef>(), Err(ParseClusterProfileError), "{text:?}");
        }
    }
}
