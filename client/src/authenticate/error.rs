//! Why a request was not sent.

use credbroker_proto::Reason;

use super::destination::Destination;
use crate::error::Error;

/// Why a request was not sent: there is no credential, or it is not one for the server of the request.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct AuthenticateError(#[from] pub(super) Refusal);

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the request needs a credential, but no credential is valid")]
    NoCredential(#[source] Error),
    #[error(
        "no credential is sent to {destination}, because it is for {cluster}; send the request there, or use any_host"
    )]
    OtherCluster {
        /// The server of the request.
        destination: Destination,
        /// The cluster that the broker sent with the credential.
        cluster: Destination,
    },
    /// Others on the network could read the credential.
    #[error("no credential is sent to {destination} without TLS; use https, or allow_plaintext")]
    Plaintext {
        /// The server of the request.
        destination: Destination,
    },
    #[error(
        "no credential is sent to {destination}, because the broker names no cluster for it; name the server, or use any_host"
    )]
    UnknownCluster {
        /// The server of the request.
        destination: Destination,
    },
}

impl AuthenticateError {
    /// The stable reason, if there is no credential and the broker said why. Such a request can be sent again later.
    pub fn reason(&self) -> Option<Reason> {
        match &self.0 {
            Refusal::NoCredential(error) => error.reason(),
            _ => None,
        }
    }
}
