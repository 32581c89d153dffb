//! A new connection gets a place, or is refused.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{net::UnixStream, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Acceptor;
use crate::{
    Peer, Program,
    connection::ConnectionRefusal,
    places::{Full, HeldCounts, Place},
    process::coarse,
    traffic::Traffic,
};

/// A lack of places is logged once in this time, not for each connection.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// Time for a refused peer to read its error.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

impl<P: Program> Acceptor<P> {
    pub(super) fn admit(&self, number: usize, stream: UnixStream) {
        let identity = match self.identities.of(&stream, number) {
            Ok(identity) => identity,
            Err(error) => return debug!(%error, "a connection without an identity was closed"),
        };
        let peer = identity.peer;
        let known = Arc::new(self.connections.program.meet(identity));
        // Each connection has a separate token, because each of its polls locks the token.
        let (end, now) = (self.connections.draining.child_token(), coarse());
        let (refusal, place, traffic) = match self.place((&peer, &known), end.clone(), now) {
            Ok((place, traffic)) => (None, place, traffic),
            Err(refusal) => {
                let Some(place) = self.places.refuse() else {
                    return debug!(
                        uid = peer.uid,
                        "a connection was closed: too many are refused at the moment"
                    );
                };
                (Some(refusal), place, Traffic::new(end, HeldCounts::default(), now, P::status))
            }
        };
        let is_refused = refusal.is_some();
        let serve = self.connections.clone().serve(stream, (peer, known), traffic, refusal);
        self.connections.tasks.spawn(async move {
            if !is_refused {
                serve.await;
            } else if timeout(REFUSAL_TIMEOUT, serve).await.is_err() {
                debug!(uid = peer.uid, "a peer that is refused stayed; its connection was closed");
            }
            drop(place);
        });
    }

    /// Takes a place for a connection.
    pub(super) fn place(
        &self,
        (peer, known): (&Peer, &P::Peer),
        end: CancellationToken,
        now: Duration,
    ) -> Result<(Place, Arc<Traffic>), ConnectionRefusal> {
        if !self.connections.program.may_connect(known) {
            return Err(ConnectionRefusal::Denied);
        }
        self.places.take(peer, end, now).map_err(|full| {
            let (seconds, noted) = (now.as_secs(), self.noted.load(Ordering::Relaxed));
            if noted == 0 || seconds.saturating_sub(noted) >= NOTE_EVERY.as_secs() {
                self.noted.store(seconds.max(1), Ordering::Relaxed);
                note_full(peer, full);
            }
            ConnectionRefusal::Full(full)
        })
    }
}

fn note_full(peer: &Peer, full: Full) {
    let (uid, pid) = (peer.uid, peer.pid);
    match full {
        Full::Connections(limit) => {
            warn!(limit, "no more connections are served (`limits.connections`) until one is closed or idle");
        }
        Full::OpenFiles(limit) => {
            warn!(
                limit,
                "no more connections are served until one is closed or idle: the limit of open files"
            );
        }
        Full::Process(limit) => {
            warn!(limit, uid, pid, "a process gets no more connections (`limits.connectionsPerProcess`)");
        }
        Full::Silent(limit) => warn!(limit, uid, pid, "a process opens connections without calls"),
        Full::Uid(limit) => warn!(limit, uid, "a uid gets no more connections (`limits.connectionsPerUid`)"),
    }
}
