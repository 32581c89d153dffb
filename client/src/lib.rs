//! Client of credbroker, the local credential broker for Kubernetes.
//!
//! - [`CredentialSource`] is a credential that is always current, for programs that run for longer than a credential
//!   lasts. Many sources share the [`Connections`] to one broker.
//! - [`Clusters`] are the `ClusterProfile`s that the broker knows, and their changes.
//! - [`Authenticate`] is a tower layer that sends requests with the credential of a source, and reports the 401s.
//! - `tls` (feature `rustls`) has connections that follow a client certificate.
//! - `kube` (feature `kube`) makes a `kube::Client` that follows every rotation, and the endpoint of a `ClusterProfile`.
//! - [`Client`] is one connection, for single calls. [`admin`] has the administrative calls.
//! - `blocking` (feature `blocking`) is one call without a runtime, for processes that live for a millisecond. Without the
//!   default feature `async` it is all that is built.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use credbroker_client::{CredentialRef, CredentialSource, Socket};
//!
//! let source = CredentialSource::open(Socket::from_env()?, CredentialRef::provider("gke")).await?;
//! let mut headers = http::HeaderMap::new();
//! if let Some(credential) = source.current() {
//!     credential.authorize(&mut headers);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The broker runs on Linux. This crate also builds on macOS, so that programs that use it can be developed there.

#[cfg(feature = "async")]
pub mod admin;
#[cfg(feature = "async")]
mod authenticate;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "async")]
mod client;
#[cfg(feature = "async")]
mod clock;
#[cfg(any(feature = "async", feature = "blocking"))]
mod cluster;
#[cfg(feature = "async")]
mod cluster_state;
mod connect;
#[cfg(feature = "async")]
mod connections;
#[cfg(any(feature = "async", feature = "blocking"))]
mod credential;
#[cfg(feature = "async")]
mod deadline;
mod error;
mod failure;
#[cfg(feature = "async")]
mod fleet;
#[cfg(feature = "async")]
mod health;
#[cfg(feature = "kube")]
pub mod kube;
mod lost;
#[cfg(all(feature = "messages", any(feature = "async", feature = "blocking")))]
mod messages;
/// For credbroker's own programs. It is not a part of the API.
#[doc(hidden)]
pub mod paths;
#[cfg(feature = "async")]
mod pool;
#[cfg(any(feature = "async", feature = "blocking"))]
mod reference;
#[cfg(feature = "async")]
mod rejection;
#[doc(hidden)]
pub mod safety;
#[cfg(feature = "serialize")]
mod serialize;
mod socket;
#[cfg(feature = "async")]
mod source;
#[cfg(feature = "async")]
mod supervisor;
#[cfg(feature = "rustls")]
pub mod tls;
#[cfg(feature = "async")]
mod transport;
mod trust;

#[cfg(feature = "async")]
pub use authenticate::{
    Authenticate, AuthenticateError, Authenticated, Destination, Never, Repeat, WithoutBody,
};
#[cfg(feature = "async")]
pub use client::Client;
#[cfg(any(feature = "async", feature = "blocking"))]
pub use cluster::Cluster;
#[cfg(feature = "async")]
pub use cluster_state::{
    ClusterChanges, ClusterList, ClusterState, HubState, Property, Readiness, SkippedProvider,
};
#[cfg(feature = "async")]
pub use connections::Connections;
pub use credbroker_proto::{Code, Reason};
#[cfg(any(feature = "async", feature = "blocking"))]
pub use credential::{Credential, TlsIdentity};
pub use error::Error;
pub use failure::Failure;
#[cfg(feature = "async")]
pub use fleet::{ClusterEvent, ClusterEvents, Clusters};
#[cfg(any(feature = "async", feature = "blocking"))]
pub use reference::{ClusterProfileRef, CredentialRef, ParseClusterProfileError};
#[cfg(feature = "async")]
pub use rejection::{RejectionReport, ReportOutcome};
#[cfg(any(feature = "async", feature = "blocking"))]
pub use secrecy::{ExposeSecret, SecretSlice, SecretString};
pub use socket::{IgnoredRuntimeDirectory, Socket, SocketError, SocketSources};
#[cfg(feature = "async")]
pub use source::{CredentialChanges, CredentialSource};
pub use trust::TrustError;

/// The Rust program of the README compiles.
#[cfg(all(doctest, feature = "kube"))]
#[doc = include_str!("../../README.md")]
mod readme {}
