//! Places for the connections of a server that speaks another protocol, by the same rules.

use std::{io, sync::Arc};

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::{
    account::Full,
    identity::{Identities, PeerIdentity},
    linux::{Peer, coarse},
    places::{Limits, Place, Places},
    traffic::{Call, Traffic},
};

/// Identifies peers, and divides places for connections among them.
#[derive(Debug)]
pub struct Seats {
    identities: Arc<Identities>,
    places: Arc<Places>,
    draining: CancellationToken,
}

impl Seats {
    /// Places within `limits`, for connections that `draining` ends.
    pub fn new(limits: Limits, draining: CancellationToken) -> Self {
        Self { identities: Identities::new(), places: Arc::new(Places::new(limits)), draining }
    }

    /// The peer of `stream`, which the listener of that number accepted.
    ///
    /// # Errors
    ///
    /// The kernel does not say who it is.
    pub fn identify(&self, stream: &UnixStream, listener: usize) -> io::Result<PeerIdentity> {
        self.identities.of(stream, listener)
    }

    /// The user of `uid`, which the kernel has said; `None`: the number identifies none.
    pub fn user(&self, uid: u32) -> Option<u32> {
        self.identities.user(uid)
    }

    /// Whether `uid` is that of this process.
    pub fn is_own(&self, uid: u32) -> bool {
        self.identities.is_own(uid)
    }

    /// The connections that have a place.
    pub fn taken(&self) -> usize {
        self.places.taken()
    }

    /// Takes a place for a connection of `peer`. If there is none, the connection that had no request for the longest time
    /// gives way: one of the same process or uid if that has its share.
    ///
    /// # Errors
    ///
    /// No connection is idle.
    pub fn take(&self, peer: &Peer) -> Result<Seat, Full> {
        let (place, traffic) = self.places.take(peer, self.draining.child_token(), coarse())?;
        Ok(Seat { _place: place, traffic })
    }
}

/// The place of one connection, which has it until this is dropped.
#[derive(Debug)]
pub struct Seat {
    _place: Place,
    traffic: Arc<Traffic>,
}

impl Seat {
    /// Cancelled to end the connection: the server drains, or another connection needs the place.
    pub fn end(&self) -> &CancellationToken {
        &self.traffic.end
    }

    /// Notes a request, until what it returns is dropped: the connection is not idle.
    pub fn request(&self) -> Occupied {
        Occupied { _call: Call::of(&self.traffic) }
    }
}

/// A request in progress on a connection.
#[derive(Debug)]
pub struct Occupied {
    _call: Call,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_a_request_keeps_its_place_and_an_idle_one_gives_way() {
        let seats = Seats::new(Limits::for_tests(2), CancellationToken::new());
        let peer = |uid| Peer { listener: 0, uid, gid: uid, pid: None };
        let busy = seats.take(&peer(1)).unwrap();
        let request = busy.request();
        let _other = seats.take(&peer(2)).unwrap();
        assert_eq!(seats.taken(), 2);
        assert!(seats.take(&peer(3)).is_err(), "a new connection is not idle yet");
        assert!(!busy.end().is_cancelled());
        drop((request, busy));
        assert_eq!(seats.taken(), 1);
        assert!(seats.take(&peer(3)).is_ok());
    }
}
