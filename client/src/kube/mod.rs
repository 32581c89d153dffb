//! A `kube::Client` that follows every rotation for its whole life: the feature `kube`.
//!
//! Its server, authorities, TLS server name, proxy, timeouts, headers and retries are those of a [`Config`]; who it is
//! comes from a [`CredentialSource`]. Watches, `exec` and `port-forward` work as ever; those that are open when a client
//! certificate changes are ended at the drain deadline, as [`tls`](crate::tls) says.
//!
//! As with kube itself, the program chooses the version of the API: it depends on `k8s-openapi` 0.29 with a feature such
//! as `latest`.
//!
//! ```no_run
//! # async fn example() -> Result<(), tower::BoxError> {
//! use credbroker_client::{CredentialRef, CredentialSource, Socket, kube::Builder};
//!
//! let source =
//!     CredentialSource::open(Socket::at(Socket::SYSTEM), CredentialRef::provider("gke")).await?;
//! let config = kube::Config::new("https://paris.example:6443".parse()?);
//! let client = Builder::new(config, source).build()?;
//! let version = client.apiserver_version().await?;
//! # Ok(())
//! # }
//! ```

mod builder;
mod cluster;
mod endpoint;
mod error;
mod moving;
mod proxy;
mod stack;

pub use builder::Builder;
pub use cluster::{ClusterBuilder, for_cluster_profile};
pub use error::BuildError;
pub use moving::EndpointError;
