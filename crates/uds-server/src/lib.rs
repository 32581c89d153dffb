//! A gRPC server on a Unix socket. It could serve any [`Program`].
//!
//! - [`publish`] makes the socket, so that no other user can replace it, and a [`Keeper`] publishes it again when it is
//!   removed.
//! - An [`Acceptor`] accepts connections, asks the kernel [who the peer is](PeerIdentity), and serves hyper's HTTP/2.
//!   tonic's own server cannot set every HTTP/2 limit, time out a handshake, survive a lack of descriptors, or drain.
//! - [`ConnectionLimits`] divide connections and memory among uids, and among the processes of a uid.
//!
//! Who a peer is to the program, and what its calls mean, is not known here.

mod accept;
mod connection;
mod exchange;
mod identity;
mod keeper;
mod origin;
mod peer;
mod places;
mod process;
mod program;
mod publication;
mod request_body;
mod response_body;
mod settings;
mod socket_place;
#[cfg(test)]
mod testing;
mod traffic;
mod users;
mod watches;

pub use accept::Acceptor;
pub use identity::{PeerIdentity, PeerProcess, ProcessFacts};
pub use keeper::{Keeper, SocketOrigin};
pub use peer::Peer;
pub use places::{ConnectionLimits, Full, TooManyBytes, affordable_runs};
pub use program::{CallKind, Program, Refusal};
pub use publication::{Publication, publish};
pub use request_body::RequestBody;
pub use response_body::{Loss, error_trailers, ok_trailers};
pub use settings::REQUEST;
pub use socket_place::{SocketError, SocketOptions};
pub use watches::{WatchSlot, WatchSlots};
