//! A `kube::Client` whose credential and endpoint come from credbroker, and that follows every rotation.
//!
//! - [`for_cluster_profile`] makes the client of a `ClusterProfile`. Its credential and its endpoint both come from the
//!   broker, and the client follows both. [`ClusterBuilder`] is the same with settings.
//! - [`for_provider`] makes the client of a server that the program names, with the credentials of a provider. [`Builder`] is
//!   the same with settings. Server, authorities, TLS server name, proxy, timeouts, headers and retries are those of a
//!   [`Config`](kube::Config).
//!
//! Watches, `exec` and `port-forward` work as with kube. Those that are open when a client certificate or an endpoint
//! changes end at the drain deadline, as [`tls`](credbroker_client::tls) says.
//!
//! As with kube itself, the program chooses the version of the Kubernetes API: it depends on `k8s-openapi` 0.29 with a
//! feature such as `latest` or `v1_34`. A program that uses kube depends on version 5, or uses [`kube`] of this crate. Another
//! version of kube needs another version of this crate, and no other version of `credbroker-client`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use credbroker_client::Broker;
//! use credbroker_kube::for_cluster_profile;
//!
//! let paris = for_cluster_profile(&Broker::from_env()?, "fleet", "paris").await?;
//! println!("{}", paris.apiserver_version().await?.git_version);
//! # Ok(())
//! # }
//! ```

mod body;
mod builder;
mod cluster;
mod dialer;
mod endpoint;
mod error;
mod proxy;
mod router;
mod stack;
mod upstream;

pub use builder::Builder;
pub use cluster::{ClusterBuilder, for_cluster_profile, for_provider};
pub use error::BuildError;
pub use router::EndpointError;

// Of credbroker's proxy. Not a part of the API.
#[doc(hidden)]
pub use body::RequestBody;
#[doc(hidden)]
pub use router::EndpointRouter;
#[doc(hidden)]
pub use upstream::Upstream;

/// The kube that this crate is built with.
pub use kube;

/// What a service answers if it fails.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The Rust program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
