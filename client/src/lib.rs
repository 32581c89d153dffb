//! Client of credbroker, the local credential broker for Kubernetes.
//!
//! - [`CredentialSource`] is a credential that is always the current one, for programs that run for longer than it
//!   lasts. Many of them share a few [`Connections`].
//! - [`Clusters`] is the fleet: every `ClusterProfile` that the broker knows, and what becomes of it.
//! - [`Authenticate`] is a tower layer that sends each request in the name of a source, and reports the 401s.
//! - `tls` (feature `rustls`) has connections that follow a client certificate: old ones take no new request.
//! - `kube` (feature `kube`) makes a `kube::Client` that follows every rotation, and of a `ClusterProfile` its endpoint.
//! - [`ask`] is one question from start to end: find the [`Socket`], check that it can be trusted, wait a little for a
//!   broker that is just starting, ask. It is built for processes that live for a millisecond: plain HTTP/2 over a Unix
//!   socket, one connection, no background work that outlives it.
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

mod authenticate;
mod client;
mod clock;
mod connect;
mod connections;
mod credential;
mod error;
mod fleet;
#[cfg(feature = "kube")]
pub mod kube;
mod patience;
mod reference;
mod socket;
mod source;
#[cfg(feature = "rustls")]
pub mod tls;
mod transport;
mod trust;

pub use authenticate::{
    Authenticate, AuthenticateError, Authenticated, Destination, Never, Repeat, WithoutBody,
};
pub use client::{Client, Waits, ask};
pub use connections::Connections;
pub use credential::{Credential, TlsIdentity};
pub use error::Error;
pub use fleet::{
    ClusterEvent, ClusterProfileRef, ClusterState, Clusters, HubState, ListClustersResponse,
    WatchClustersResponse,
};
pub use reference::{Cluster, CredentialRef};
pub use socket::{Locations, Socket, SocketError};
pub use source::CredentialSource;
/// The code in [`Error::Failed`].
pub use tonic::Code;
pub use trust::Distrust;
