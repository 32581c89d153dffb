//! The accept loop: bounded in connections, calm when descriptors run out.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;
use tracing::{debug, info, warn};

use super::{
    connection::Connections,
    peer::{Peer, PeerPolicy},
};

/// Pauses while nothing can be accepted: doubling between these.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Connections of peers that may not ask, at a time: they are told so, and take no place of those that may.
const STRANGERS: usize = 64;
/// How long such a peer may take to hear it.
const FAREWELL: Duration = Duration::from_secs(5);

/// Accepts connections and serves each on a task of its own.
#[derive(Debug)]
pub struct Acceptor {
    connections: Connections,
    slots: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Acceptor {
    /// At most `limit` connections at a time, one more is closed at once; at most `watches` watches on each.
    pub fn new(
        routes: Routes,
        policy: PeerPolicy,
        (limit, watches): (usize, usize),
        tasks: TaskTracker,
        draining: CancellationToken,
    ) -> Self {
        let connections = Connections { routes: routes.prepare(), policy, watches, tasks, draining };
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { connections, slots: semaphore(limit), strangers: semaphore(STRANGERS) }
    }

    /// Accepts until the broker drains. The listener stays open until it is dropped by the caller: who connects
    /// meanwhile waits in its backlog for the successor, if systemd holds it too.
    pub async fn run(&self, listener: &UnixListener) {
        let draining = &self.connections.draining;
        let mut pause = PAUSE.0;
        loop {
            let accepted = tokio::select! {
                biased;
                () = draining.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    if pause > PAUSE.0 {
                        info!("connections are accepted again");
                    }
                    pause = PAUSE.0;
                    self.admit(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    debug!(%error, "a connection went away before it was accepted");
                }
                // A shortage, of descriptors or memory, or worse: to try again at once would only burn a processor.
                Err(error) => {
                    note_shortage(&error, pause);
                    tokio::select! {
                        () = draining.cancelled() => return,
                        () = sleep(pause) => {}
                    }
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    fn admit(&self, stream: UnixStream) {
        let peer = match Peer::of(&stream) {
            Ok(peer) => peer,
            Err(error) => return debug!(%error, "a connection without an identity was closed"),
        };
        let allowed = self.connections.policy.allows(&peer);
        let slots = if allowed { &self.slots } else { &self.strangers };
        let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
            return debug!(
                uid = peer.uid,
                allowed, "one connection too many was closed (`limits.connections`)"
            );
        };
        let serve = self.connections.clone().serve(stream, peer);
        self.connections.tasks.spawn(async move {
            if allowed {
                serve.await;
            } else if timeout(FAREWELL, serve).await.is_err() {
                debug!(uid = peer.uid, "a peer that may not ask stayed; its connection was closed");
            }
            drop(slot);
        });
    }
}

/// Told once per shortage, not once per attempt.
fn note_shortage(error: &io::Error, pause: Duration) {
    if pause == PAUSE.0 {
        warn!(%error, "no connection can be accepted; trying again until something is given back");
    }
}
