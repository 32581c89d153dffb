//! What a broker says about itself and its providers.

use std::time::SystemTime;

use credbroker_proto::v1alpha1;

use super::{configuration::ConfigurationState, state::time};
use crate::{cluster_state::HubState, failure::Failure};

/// A provider of the broker.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct ProviderState {
    /// Its name.
    pub name: String,
    /// Its definition. `None`: the broker's configuration defines it.
    pub definition: Option<String>,
    /// The plugin's command as configured.
    pub command: String,
    /// Whether `ClusterProfile`s can use it.
    pub serves_cluster_profiles: bool,
    /// Why a run cannot start.
    pub failure: Option<Failure>,
    /// The kubeconfig that defines it. `None`: the broker's configuration defines it.
    pub definition_file: Option<String>,
}

impl ProviderState {
    pub(crate) fn from_message(message: v1alpha1::ProviderState) -> Self {
        let v1alpha1::ProviderState {
            name,
            definition,
            command,
            serves_cluster_profiles,
            failure,
            definition_file,
        } = message;
        Self {
            name,
            definition,
            command,
            serves_cluster_profiles,
            failure: failure.map(Failure::from_message),
            definition_file,
        }
    }
}

/// A running broker.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct BrokerInfo {
    /// Its version.
    pub version: String,
    /// The commit that it was built from, if it is known.
    pub commit: Option<String>,
    /// When it started.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "startTime", serialize_with = "crate::serialize::time")
    )]
    pub started_at: Option<SystemTime>,
    /// The files that its configuration was read from, kubeconfigs included.
    pub config_files: Vec<String>,
    /// The sockets that it listens on.
    pub sockets: Vec<String>,
    /// The hub. `None`: none is configured.
    pub hub: Option<HubState>,
    /// Which configuration is active. `None`: the broker does not say.
    #[cfg_attr(feature = "_serialize", serde(skip))]
    pub configuration: Option<ConfigurationState>,
}

impl BrokerInfo {
    pub(crate) fn from_message(message: v1alpha1::GetBrokerInfoResponse) -> Self {
        let v1alpha1::GetBrokerInfoResponse {
            version,
            commit,
            start_time,
            config_files,
            sockets,
            hub,
            configuration,
        } = message;
        Self {
            version,
            commit,
            started_at: time(start_time),
            config_files,
            sockets,
            hub: hub.map(HubState::from_message),
            configuration: configuration.map(ConfigurationState::from_message),
        }
    }
}
