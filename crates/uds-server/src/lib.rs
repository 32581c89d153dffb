//! A gRPC server on a Unix socket. It could serve any [`Program`].
//!
//! - [`publish`] makes the socket, so that no other user can replace it, and a [`Keeper`] publishes it again when it is
//!   removed.
//! - An [`Acceptor`] accepts connections, asks the kernel [who the peer is](PeerIdentity), and serves hyper's HTTP/2.
//!   tonic's own server cannot set every HTTP/2 limit, time out a handshake, survive a lack of descriptors, or drain.
//! - [`Seats`] are places for the connections of a server of another protocol, with [`accept_each`].
//! - [`Limits`] are divided among uids, and among the processes of a uid: connections, and bytes of memory.
//!
//! Who a peer is to the program, and what its calls mean, is not known here.

mod accept;
mod account;
mod connection;
mod exchange;
mod identity;
mod keeper;
mod linux;
mod places;
mod program;
mod publication;
mod request_body;
mod response_body;
mod seats;
mod socket_place;
mod stream;
#[cfg(test)]
mod testing;
mod traffic;

pub use accept::{Acceptor, Listener, accept_each, accept_the_rest};
pub use account::{Full, Limit, Refusal, Who};
pub use identity::{PeerIdentity, PeerProcess, ProcessFacts};
pub use keeper::{Keeper, SocketOrigin};
pub use linux::Peer;
pub use places::{Limits, affordable_runs};
pub use program::{CallKind, Program};
pub use publication::{Publication, publish};
pub use request_body::{MESSAGE, REQUEST};
pub use response_body::{Loss, error_trailers, ok_trailers};
pub use seats::{Occupied, Seat, Seats};
pub use socket_place::{SocketError, SocketOptions};
pub use traffic::{Charge, WatchSlot, WatchSlots};
