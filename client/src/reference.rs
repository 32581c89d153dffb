//! Which credential is meant.

use std::fmt;

use credbroker_proto::v1::{
    self, ClusterProfileRef, GetCredentialRequest, ProviderRef, WatchCredentialRequest,
    credential_ref::Source,
};

pub use credbroker_proto::v1::Cluster;

/// Names one credential, and what the caller contributes to it. `Debug` shows no value of the environment and nothing
/// secret of the cluster.
///
/// ```
/// use credbroker_client::CredentialRef;
///
/// let prod = CredentialRef::provider("eks").env("AWS_PROFILE", "prod");
/// let paris = CredentialRef::cluster_profile("fleet", "paris");
/// assert!(!format!("{prod:?}").contains("prod"));
/// # drop(paris);
/// ```
#[derive(Clone, PartialEq)]
pub struct CredentialRef(v1::CredentialRef);

impl CredentialRef {
    /// Of a provider, by its configured name.
    ///
    /// ```
    /// let reference = credbroker_client::CredentialRef::provider("gke");
    /// ```
    pub fn provider(name: impl Into<String>) -> Self {
        Self::of(Source::Provider(ProviderRef { name: name.into(), definition: None }))
    }

    /// Of a `ClusterProfile` object.
    ///
    /// ```
    /// let reference = credbroker_client::CredentialRef::cluster_profile("fleet", "paris");
    /// ```
    pub fn cluster_profile(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::of(Source::ClusterProfile(ClusterProfileRef { namespace: namespace.into(), name: name.into() }))
    }

    /// With a value from the caller's environment. The broker keeps it only if the provider's `callerEnv` names it.
    ///
    /// ```
    /// use credbroker_client::CredentialRef;
    ///
    /// let reference = CredentialRef::provider("eks").env("AWS_PROFILE", "prod");
    /// ```
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.env.insert(name.into(), value.into());
        self
    }

    /// For this cluster, which a provider with `provideClusterInfo` tells its plugin.
    ///
    /// ```
    /// use credbroker_client::{Cluster, CredentialRef};
    ///
    /// let cluster = Cluster { server: "https://paris.example:6443".into(), ..Cluster::default() };
    /// let reference = CredentialRef::provider("gke").cluster(cluster);
    /// ```
    #[must_use]
    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.0.cluster = Some(cluster);
        self
    }

    fn of(source: Source) -> Self {
        Self(v1::CredentialRef { source: Some(source), ..v1::CredentialRef::default() })
    }
}

impl fmt::Debug for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<CredentialRef> for v1::CredentialRef {
    fn from(reference: CredentialRef) -> Self {
        reference.0
    }
}

impl From<CredentialRef> for GetCredentialRequest {
    fn from(reference: CredentialRef) -> Self {
        Self { r#ref: Some(reference.0), ..Self::default() }
    }
}

impl From<CredentialRef> for WatchCredentialRequest {
    fn from(reference: CredentialRef) -> Self {
        Self { r#ref: Some(reference.0) }
    }
}
