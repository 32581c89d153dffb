//! Client of credbroker, the local credential broker for Kubernetes.
//!
//! [`ask`] is one question from start to end: find the [`Socket`], check that it can be trusted, wait a little for a
//! broker that is just starting, ask. [`Client`] is the connection by itself, for more than one question.
//!
//! It is built for processes that live for a millisecond: plain HTTP/2 over a Unix socket, one connection, no pool, no
//! balancer, no background work that outlives the [`Client`].

mod client;
mod connect;
mod error;
mod patience;
mod socket;
mod transport;
mod trust;

pub use client::{Client, Waits, ask};
pub use error::Error;
pub use socket::{Locations, Socket, SocketError};
/// The code in [`Error::Failed`].
pub use tonic::Code;
pub use trust::Distrust;
