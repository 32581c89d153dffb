//! Why there is no client.

use crate::{Destination, Error, tls::SettingsError};

/// Why there is no client.
///
/// ```no_run
/// # fn example(mut config: kube::Config, source: credbroker_client::CredentialSource) {
/// use credbroker_client::kube::{BuildError, Builder};
///
/// let outcome = Builder::new(config, source).build();
/// let has_its_own = matches!(outcome, Err(BuildError::Credentials { .. }));
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// What is given as the cluster's authorities is no bundle of certificates. Mend the `ClusterProfile`.
    #[error("the cluster's certificate authorities cannot be used")]
    Authorities(#[source] SettingsError),
    /// The config cannot be used; see its source.
    #[error("the kube config cannot be used")]
    Config(#[source] Box<::kube::Error>),
    /// The config has credentials of its own, and nobody could say whose count. Clear them.
    #[error("the kube config has credentials of its own ({what}); clear them, the source brings its own")]
    Credentials {
        /// Which field of `auth_info`.
        what: &'static str,
    },
    /// The broker has no credential yet; see its source. Try again, or build without waiting for it.
    #[error("there is no credential to begin with")]
    NoCredential(#[source] Error),
    /// The credential came without a cluster: it is a provider's, of which only the plugin knows where it is for. Name
    /// a `ClusterProfile`, or use [`Builder`](super::Builder) with the server's address.
    #[error("the broker names no cluster beside the credential; name a ClusterProfile, or the server")]
    NoEndpoint,
    /// Anybody on the way could read the credential. Use https, or allow it.
    #[error("no credential is sent to {destination} in the clear; use https, or allow_plaintext")]
    Plaintext {
        /// Where the cluster is.
        destination: Destination,
    },
    /// A proxy is `http`, `https` or `socks5`.
    #[error("a proxy of scheme {scheme:?} is not known here; use http, https or socks5")]
    Proxy {
        /// What it has.
        scheme: String,
    },
    /// The cluster's proxy is no URL. It may have a password, so it is not shown.
    #[error("the cluster's proxy is no URL; write http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")]
    ProxyUrl,
    /// The cluster's server is no URL.
    #[error("the cluster's server {server:?} is no URL; write https://HOST:PORT")]
    Server {
        /// What it has.
        server: String,
    },
    /// The TLS server name cannot be one.
    #[error("the TLS settings cannot be used")]
    Tls(#[from] SettingsError),
    /// The cluster has authorities and is not to be checked by them: one of the two is a mistake, and guessing could send
    /// the credential to anybody. Mend the `ClusterProfile`.
    #[error("the cluster has certificate authorities and says not to check by them; choose one")]
    Unchecked,
}

pub(super) fn unusable(error: ::kube::Error) -> BuildError {
    BuildError::Config(Box::new(error))
}
