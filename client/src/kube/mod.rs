//! A `kube::Client` that follows every rotation for its whole life: the feature `kube`.
//!
//! - [`for_cluster_profile`] makes the client of a `ClusterProfile`: credential and endpoint both come from the broker,
//!   together, and the client follows both. [`ClusterBuilder`] is the same with settings.
//! - [`Builder`] makes the client of a server that the program names: server, authorities, TLS server name, proxy,
//!   timeouts, headers and retries are those of a [`Config`](::kube::Config); who it is comes from a
//!   [`CredentialSource`](crate::CredentialSource).
//!
//! Watches, `exec` and `port-forward` work as ever; those that are open when a client certificate or an endpoint changes
//! are ended at the drain deadline, as [`tls`](crate::tls) says.
//!
//! As with kube itself, the program chooses the version of the API: it depends on `k8s-openapi` 0.29 with a feature such
//! as `latest`.
//!
//! ```no_run
//! # async fn example() -> Result<(), tower::BoxError> {
//! use credbroker_client::{Connections, CredentialRef, Socket, kube::{Builder, for_cluster_profile}};
//!
//! let broker = Connections::to(Socket::at(Socket::SYSTEM));
//! let paris = for_cluster_profile(&broker, "fleet", "paris").await?;
//!
//! let source = broker.source(CredentialRef::provider("gke"));
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
