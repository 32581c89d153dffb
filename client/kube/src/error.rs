//! Why there is no client.

use std::{error::Error as StdError, sync::Arc};

use credbroker_client::{Error, Reason, tls::SettingsError};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The cluster's authorities are not a bundle of certificates. Correct the `ClusterProfile`.
    #[error("the cluster's certificate authorities cannot be used")]
    Authorities {
        /// What is wrong with them.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The config cannot be used; see its source.
    #[error("the kube config cannot be used")]
    Config {
        /// What is wrong with it.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The config has credentials, which the source would replace. Remove them.
    #[error("the kube config already has credentials ({what}); remove them, the source provides its own")]
    Credentials {
        /// The field of `auth_info`.
        what: &'static str,
    },
    /// The broker has no credential; see its source. Try again, or build the client without waiting.
    #[error("there is no credential for the cluster")]
    NoCredential(#[source] Error),
    /// The credential came without a cluster. It is a provider's, and only the plugin knows its cluster. Name a
    /// `ClusterProfile`, or use [`Builder`](crate::Builder) with the server's address.
    #[error("the broker names no cluster for the credential; name a ClusterProfile, or the server")]
    NoEndpoint,
    /// Others on the network could read the credential. Use https, or allow it.
    #[error("no credential is sent to {destination} without TLS; use https, or allow_plaintext")]
    Plaintext {
        /// The server.
        destination: String,
    },
    /// The scheme of the proxy is not supported.
    #[error("the proxy's scheme must be one of http, https and socks5, not {scheme:?}")]
    Proxy {
        /// The scheme.
        scheme: String,
    },
    /// The cluster's proxy is not a valid URL. It may contain a password, so it is not shown.
    #[error(
        "the cluster's proxy is not a valid URL; use http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"
    )]
    ProxyUrl,
    /// The cluster's server is not a valid URL.
    #[error("the cluster's server {server:?} is not a valid URL; use https://HOST:PORT")]
    Server {
        /// The server.
        server: String,
    },
    /// The TLS settings cannot be used; see its source.
    #[error("the TLS settings cannot be used")]
    Tls(#[from] SettingsError),
    /// The cluster has certificate authorities, and says that the server's certificate is not checked. One of the two is a
    /// mistake, and a guess could send the credential to a stranger. Correct the `ClusterProfile`.
    #[error("the cluster has certificate authorities and insecure_skip_tls_verify; remove one of them")]
    Unchecked,
}

impl BuildError {
    /// The stable reason, if there is no credential and the broker said why.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::NoCredential(error) => error.reason(),
            _ => None,
        }
    }
}

pub(crate) fn unusable(error: kube::Error) -> BuildError {
    BuildError::Config { source: Arc::new(error) }
}
