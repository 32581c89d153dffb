//! Why a request was not sent.

use super::destination::Destination;
use crate::error::Error;

/// Why a request was not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticateError {
    /// No credential is valid, and none arrived within ten seconds. Send the request again later.
    #[error("the request needs a credential, and none is valid")]
    NoCredential {
        /// Why the broker has none.
        source: Error,
    },
    /// The credential is for another cluster than the request. Send the request to that cluster, or allow any host.
    #[error(
        "no credential is sent to {destination}, because it is for {cluster}; send the request there, or use any_host"
    )]
    OtherCluster {
        /// The server of the request.
        destination: Destination,
        /// The cluster that the broker sent with the credential.
        cluster: Destination,
    },
    /// Others on the network could read the credential. Use https, or allow it.
    #[error("no credential is sent to {destination} without TLS; use https, or allow_plaintext")]
    Plaintext {
        /// The server of the request.
        destination: Destination,
    },
    /// The broker sent no cluster with the credential, so it is not known which server may have it. Name the server, or
    /// allow any host.
    #[error(
        "no credential is sent to {destination}, because the broker names no cluster for it; name the server, or use any_host"
    )]
    UnknownCluster {
        /// The server of the request.
        destination: Destination,
    },
}
