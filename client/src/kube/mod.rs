//! A `kube::Client` that follows every rotation: the feature `kube`.
//!
//! - [`for_cluster_profile`] makes the client of a `ClusterProfile`. Its credential and its endpoint both come from the
//!   broker, and the client follows both. [`ClusterBuilder`] is the same with settings.
//! - [`Builder`] makes the client of a server that the program names. Server, authorities, TLS server name, proxy,
//!   timeouts, headers and retries are those of a [`Config`](::kube::Config); the credentials are those of a
//!   [`CredentialSource`](crate::CredentialSource).
//!
//! Watches, `exec` and `port-forward` work as with kube. Those that are open when a client certificate or an endpoint
//! changes end at the drain deadline, as [`tls`](crate::tls) says.
//!
//! As with kube itself, the program chooses the version of the Kubernetes API: it depends on `k8s-openapi` 0.29 with a
//! feature such as `latest`. A program that does not use `k8s-openapi` can enable the feature `k8s-v1_34` of this crate
//! instead.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use credbroker_client::{Connections, Socket, kube::for_cluster_profile};
//!
//! let broker = Connections::to(Socket::from_env()?);
//! let paris = for_cluster_profile(&broker, "fleet", "paris").await?;
//! println!("{}", paris.apiserver_version().await?.git_version);
//! # Ok(())
//! # }
//! ```

mod builder;
mod cluster;
mod endpoint;
mod error;
mod proxy;
mod router;
mod stack;

pub use builder::Builder;
pub use cluster::{ClusterBuilder, for_cluster_profile};
pub use error::BuildError;
pub use router::EndpointError;

/// The kube that this crate is built with.
pub use ::kube as kube_rs;
