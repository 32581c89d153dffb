//! Client of credbroker, the local credential broker for Kubernetes.
//!
//! - [`Broker`] is the front door: [`Broker::credential`] is one call, [`Broker::source`] follows a credential, and
//!   [`Broker::clusters`] follows the fleet.
//! - [`CredentialSource`] is a credential that is always current, for programs that run for longer than a credential
//!   lasts.
//! - [`Clusters`] are the `ClusterProfile`s that the broker knows, and their changes.
//! - [`Authenticate`] is a tower layer that sends requests with the credential of a source, and reports the 401s.
//! - `tls` (feature `rustls`) has connections that follow a client certificate.
//! - The crate `credbroker-kube` makes a `kube::Client` that follows every rotation and every move of its cluster.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use credbroker_client::{Broker, CredentialRef};
//!
//! let source = Broker::from_env()?.source(CredentialRef::provider("gke"));
//! source.ready().await?;
//! let mut headers = http::HeaderMap::new();
//! if let Some(credential) = source.current() {
//!     credential.authorize(&mut headers);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every [`Error`] has a stable [`Error::reason`] if the broker gave one, also after a deadline
//! ([`Broker::timeout`], [`CredentialSource::ready_within`]).
//!
//! The broker runs on Linux. This crate also builds on macOS, so that programs that use it can be developed there. What is not
//! shown here, and the features whose names begin with an underscore, are for credbroker's own programs.

/// For the command line.
#[cfg(feature = "async")]
#[doc(hidden)]
pub mod admin;
#[cfg(feature = "async")]
mod authenticate;
/// For the shim.
#[cfg(feature = "_blocking")]
#[doc(hidden)]
pub mod blocking;
#[cfg(feature = "async")]
mod broker;
#[cfg(feature = "async")]
mod client;
#[cfg(feature = "async")]
mod clock;
#[cfg(any(feature = "async", feature = "_blocking"))]
mod cluster;
#[cfg(feature = "async")]
mod cluster_state;
mod connect;
#[cfg(any(feature = "async", feature = "_blocking"))]
mod credential;
#[cfg(feature = "async")]
mod deadline;
mod error;
mod failure;
#[cfg(feature = "async")]
mod fleet;
#[cfg(feature = "async")]
mod health;
#[cfg(feature = "async")]
mod link;
mod lost;
#[cfg(all(feature = "_messages", any(feature = "async", feature = "_blocking")))]
mod messages;
/// For credbroker's own programs.
#[doc(hidden)]
pub mod paths;
#[cfg(any(feature = "async", feature = "_blocking"))]
mod reference;
#[cfg(feature = "async")]
mod rejection;
/// For credbroker's own programs.
#[doc(hidden)]
pub mod safety;
#[cfg(feature = "_serialize")]
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
pub use authenticate::{Authenticate, AuthenticateError, Authenticated, Repeat, WithoutBody};
#[cfg(feature = "async")]
pub use broker::Broker;
#[cfg(any(feature = "async", feature = "_blocking"))]
pub use cluster::Cluster;
#[cfg(feature = "async")]
pub use cluster_state::{ClusterState, HubState, Property, Readiness, SkippedProvider};
pub use credbroker_proto::Reason;
#[cfg(any(feature = "async", feature = "_blocking"))]
pub use credential::{Credential, TlsIdentity};
pub use error::Error;
pub use failure::Failure;
#[cfg(feature = "async")]
pub use fleet::{ClusterEvent, Clusters};
#[cfg(any(feature = "async", feature = "_blocking"))]
pub use reference::{ClusterProfileRef, CredentialRef, ParseClusterProfileError};
#[cfg(any(feature = "async", feature = "_blocking"))]
pub use secrecy::{ExposeSecret, SecretSlice, SecretString};
pub use socket::{Socket, SocketError};
#[cfg(feature = "async")]
pub use source::CredentialSource;
pub use trust::TrustError;

// For credbroker's own programs and crates.
#[cfg(feature = "async")]
#[doc(hidden)]
pub use authenticate::{AnsweredElsewhere, Destination, SentWith};
#[cfg(feature = "async")]
#[doc(hidden)]
pub use client::Client;
#[cfg(feature = "async")]
#[doc(hidden)]
pub use cluster_state::{ClusterChanges, ClusterList, ContextState};
#[doc(hidden)]
pub use credbroker_proto::Code;
#[cfg(feature = "async")]
#[doc(hidden)]
pub use fleet::ContextMap;
#[cfg(feature = "async")]
#[doc(hidden)]
pub use rejection::{RejectionReport, ReportOutcome};
#[doc(hidden)]
pub use socket::{IgnoredRuntimeDirectory, SocketSources};
