//! Client of credbroker, the local credential broker for Kubernetes.
//!
//! - [`CredentialSource`] is a credential that is always the current one, for programs that run for longer than it
//!   lasts. Many of them share a few [`Connections`].
//! - [`Clusters`] is the fleet: every `ClusterProfile` that the broker knows, and what becomes of it.
//! - [`Authenticate`] is a tower layer that sends each request in the name of a source, and reports the 401s.
//! - `tls` (feature `rustls`) has connections that follow a client certificate: old ones take no new request.
//! - `kube` (feature `kube`) makes a `kube::Client` that follows every rotation, and of a `ClusterProfile` its endpoint.
//! - [`ask`] is one question from start to end: find the [`Socket`], check that it can be trusted, wait a little for a
//!   broker that is just starting, ask.
//! - `blocking` (feature `blocking`) has the same question for processes that live for a millisecond: without a runtime,
//!   in one write. Without the default feature `async` it is all that is built.
//! - [`Client`] is the connection by itself, for whoever wants the calls.
//!
//! ```no_run
//! # async fn example() -> Result<(), credbroker_client::Error> {
//! use credbroker_client::{CredentialRef, CredentialSource, Socket};
//!
//! let source = CredentialSource::open(Socket::at(Socket::SYSTEM), CredentialRef::provider("gke")).await?;
//! let mut headers = http::HeaderMap::new();
//! if let Some(credential) = source.current() {
//!     credential.authorize(&mut headers);
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "async")]
mod authenticate;
#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "async")]
mod client;
#[cfg(feature = "async")]
mod clock;
mod connect;
#[cfg(feature = "async")]
mod connections;
#[cfg(feature = "async")]
mod credential;
mod details;
mod error;
#[cfg(feature = "async")]
mod fleet;
#[cfg(feature = "kube")]
pub mod kube;
mod lost;
mod patience;
#[cfg(feature = "async")]
mod reference;
#[cfg(feature = "async")]
mod selector;
mod socket;
#[cfg(feature = "async")]
mod source;
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
pub use client::{Client, ask};
#[cfg(feature = "async")]
pub use connections::Connections;
/// The code in [`Error::Failed`].
pub use credbroker_proto::Code;
#[cfg(feature = "async")]
pub use credential::{Credential, TlsIdentity};
pub use error::Error;
#[cfg(feature = "async")]
pub use fleet::{
    ClusterEvent, ClusterProfileRef, ClusterState, Clusters, HubState, ListClustersResponse,
    WatchClustersResponse,
};
pub use patience::Waits;
#[cfg(feature = "async")]
pub use reference::{Cluster, CredentialRef};
#[cfg(feature = "async")]
pub use selector::Selector;
pub use socket::{Locations, Socket, SocketError};
#[cfg(feature = "async")]
pub use source::CredentialSource;
pub use trust::Distrust;
