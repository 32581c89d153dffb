//! Conversions from messages of `credbroker-proto`: the feature `messages`, for tests of credbroker's own programs. They are
//! not a part of the stable API.

use credbroker_proto::v1;
#[cfg(feature = "async")]
use credbroker_proto::v1alpha1;

#[cfg(feature = "async")]
use crate::{
    admin::{BrokerInfo, ConfigurationState, CredentialState, ProviderState},
    cluster_state::{ClusterState, HubState},
    failure::Failure,
};
use crate::{cluster::Cluster, credential::Credential, error::Error, reference::CredentialRef};

macro_rules! from_message {
    ($package:ident, $($name:ident),*) => {$(
        impl From<$package::$name> for $name {
            fn from(message: $package::$name) -> Self {
                Self::from_message(message)
            }
        }
    )*};
}

from_message!(v1, Cluster, CredentialRef);
#[cfg(feature = "async")]
from_message!(v1, ClusterState, Failure, HubState);
#[cfg(feature = "async")]
from_message!(v1alpha1, ConfigurationState, CredentialState, ProviderState);

#[cfg(feature = "async")]
impl From<v1alpha1::GetBrokerInfoResponse> for BrokerInfo {
    fn from(message: v1alpha1::GetBrokerInfoResponse) -> Self {
        Self::from_message(message)
    }
}

impl TryFrom<v1::Credential> for Credential {
    type Error = Error;

    fn try_from(message: v1::Credential) -> Result<Self, Error> {
        Self::from_message(message, None)
    }
}
