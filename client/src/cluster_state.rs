//! Clusters of the fleet as the broker reports them.

use std::time::SystemTime;

use credbroker_proto::v1::{self, cluster_state};

use crate::{cluster::Cluster, failure::Failure, reference::ClusterProfileRef};

/// A `ClusterProfile`, and what the broker knows about it. It holds no secrets.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct ClusterState {
    /// Its namespace and name.
    #[cfg_attr(feature = "_serialize", serde(rename = "clusterProfile"))]
    pub profile: ClusterProfileRef,
    /// `spec.displayName`.
    pub display_name: String,
    /// `spec.clusterManager.name`.
    pub cluster_manager: String,
    /// `status.version.kubernetes`.
    pub kubernetes_version: String,
    /// `status.properties`, in their order.
    pub properties: Vec<Property>,
    /// The provider that issues its credential: the first one that the profile lists and the broker is configured with.
    pub provider: Option<String>,
    /// The other providers that the configuration or the profile names.
    pub skipped_providers: Vec<SkippedProvider>,
    /// How to reach it. `None`: it has no provider, or the profile cannot be used.
    pub cluster: Option<Cluster>,
    /// Whether there is a credential for it.
    pub readiness: Readiness,
    /// Why it is not ready.
    pub failure: Option<Failure>,
}

/// A context of a kubeconfig that the broker reads. It holds no secrets.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct ContextState {
    /// Its name.
    pub name: String,
    /// The digest of its definition, for [`CredentialRef::context`](crate::CredentialRef::context).
    pub digest: String,
    /// The provider of its user. `None`: the user has a token or a client certificate, or the context cannot be used.
    pub provider: Option<String>,
    /// How to reach its cluster. `None`: the context cannot be used.
    pub cluster: Option<Cluster>,
    /// Whether there is a credential for it.
    pub readiness: Readiness,
    /// Why it is not ready.
    pub failure: Option<Failure>,
}

impl ContextState {
    /// `None`: it is a `ClusterProfile`.
    pub(crate) fn from_message(message: v1::ClusterState) -> Option<Self> {
        let readiness = Readiness::from_message(message.readiness());
        let v1::ClusterState { context: Some(v1::ContextRef { digest, name }), .. } = message else {
            return None;
        };
        let v1::ClusterState { provider, cluster, failure, .. } = message;
        let (cluster, failure) = (cluster.map(Cluster::from_message), failure.map(Failure::from_message));
        Some(Self { name, digest, provider, cluster, readiness, failure })
    }
}

/// Whether there is a credential for a cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Readiness {
    /// The broker has a valid credential.
    Ready,
    /// The plugin has not been run yet. The first request runs it.
    Idle,
    /// There is no credential, and the plugin is running.
    Fetching,
    /// There is no credential, because the last run failed.
    Failed,
    /// No provider issues credentials for it, the profile cannot be used, or the plugin is not installed.
    Unusable,
    /// A state that this release does not know.
    Unknown,
}

/// A named property of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A provider that was not chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct SkippedProvider {
    /// Its name.
    pub name: String,
    /// Why it was not chosen, for people.
    pub message: String,
}

/// The API server that the broker reads the `ClusterProfile`s from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct HubState {
    /// The broker has read all `ClusterProfile`s at least once. Until then some clusters may be missing.
    pub synced: bool,
    /// Why the hub cannot be read now. What is known stays in use.
    pub failure: Option<Failure>,
    /// Since when `synced` is as it is, and `failure` is present or absent.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "sinceTime", serialize_with = "crate::serialize::time")
    )]
    pub since: Option<SystemTime>,
}

/// The clusters of the fleet at one time.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct ClusterList {
    /// Sorted by namespace and name.
    pub clusters: Vec<ClusterState>,
    /// How complete the list is. `None`: the broker reads no `ClusterProfile`s.
    pub hub: Option<HubState>,
}

/// One message of a watch of the fleet.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClusterChanges {
    /// New and changed clusters.
    pub changed: Vec<ClusterState>,
    /// Clusters that are no longer in the fleet.
    pub removed: Vec<ClusterProfileRef>,
    /// New and changed contexts, if they were asked for.
    pub contexts: Vec<ContextState>,
    /// Digests of contexts that are gone.
    pub removed_contexts: Vec<String>,
    /// With this message all clusters have been sent.
    pub complete: bool,
    /// How complete the broker's own knowledge is. `None`: the broker reads no `ClusterProfile`s.
    pub hub: Option<HubState>,
}

impl ClusterState {
    /// An empty state of that cluster.
    #[cfg(test)]
    pub(crate) fn named(namespace: &str, name: &str) -> Self {
        let profile = v1::ClusterProfileRef { namespace: namespace.into(), name: name.into() };
        Self::from_message(v1::ClusterState { cluster_profile: Some(profile), ..Default::default() })
    }

    pub(crate) fn from_message(message: v1::ClusterState) -> Self {
        let readiness = Readiness::from_message(message.readiness());
        let v1::ClusterState {
            cluster_profile,
            display_name,
            cluster_manager,
            kubernetes_version,
            properties,
            provider,
            skipped_providers,
            cluster,
            readiness: _,
            failure,
            context: _,
        } = message;
        Self {
            profile: ClusterProfileRef::from_message(cluster_profile.unwrap_or_default()),
            display_name: display_name.unwrap_or_default(),
            cluster_manager: cluster_manager.unwrap_or_default(),
            kubernetes_version: kubernetes_version.unwrap_or_default(),
            properties: properties.into_iter().map(Property::from_message).collect(),
            provider,
            skipped_providers: skipped_providers.into_iter().map(SkippedProvider::from_message).collect(),
            cluster: cluster.map(Cluster::from_message),
            readiness,
            failure: failure.map(Failure::from_message),
        }
    }
}

impl Readiness {
    fn from_message(readiness: cluster_state::Readiness) -> Self {
        match readiness {
            cluster_state::Readiness::Unspecified => Self::Unknown,
            cluster_state::Readiness::Ready => Self::Ready,
            cluster_state::Readiness::Idle => Self::Idle,
            cluster_state::Readiness::Fetching => Self::Fetching,
            cluster_state::Readiness::Failed => Self::Failed,
            cluster_state::Readiness::Unusable => Self::Unusable,
        }
    }
}

impl Property {
    fn from_message(message: cluster_state::Property) -> Self {
        let cluster_state::Property { name, value } = message;
        Self { name, value }
    }
}

impl SkippedProvider {
    fn from_message(message: cluster_state::SkippedProvider) -> Self {
        let cluster_state::SkippedProvider { name, message } = message;
        Self { name, message }
    }
}

impl HubState {
    pub(crate) fn from_message(message: v1::HubState) -> Self {
        let v1::HubState { synced, failure, since_time } = message;
        let since = since_time.and_then(|time| SystemTime::try_from(time).ok());
        Self { synced, failure: failure.map(Failure::from_message), since }
    }
}

impl ClusterChanges {
    pub(crate) fn from_message(message: v1::WatchClustersResponse) -> Self {
        let v1::WatchClustersResponse { changed, removed, complete, hub, removed_contexts } = message;
        let (contexts, changed): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|state| state.context.is_some());
        Self {
            changed: changed.into_iter().map(ClusterState::from_message).collect(),
            removed: removed.into_iter().map(ClusterProfileRef::from_message).collect(),
            contexts: contexts.into_iter().filter_map(ContextState::from_message).collect(),
            removed_contexts: removed_contexts.into_iter().map(|context| context.digest).collect(),
            complete,
            hub: hub.map(HubState::from_message),
        }
    }
}
