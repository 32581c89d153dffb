//! Conversions from messages of `credbroker-proto`: the feature `messages`, for tests of credbroker's own programs. They are
//! not a part of the stable API.

use credbroker_proto::v1;

use crate::{
    admin::CredentialState,
    cluster::Cluster,
    cluster_state::{ClusterState, HubState},
    failure::Failure,
    reference::CredentialRef,
};

macro_rules! from_message {
    ($($name:ident),*) => {$(
        impl From<v1::$name> for $name {
            fn from(message: v1::$name) -> Self {
                Self::from_message(message)
            }
        }
    )*};
}

from_message!(Cluster, ClusterState, CredentialRef, CredentialState, Failure, HubState);
