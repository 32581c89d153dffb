//! The accept loop: bounded in connections, calm when descriptors run out.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;
use tracing::{debug, info, warn};

use super::{
    connection::{Connections, is_shortage},
    peer::PeerPolicy,
};

/// Pauses while the kernel is short of something: doubling between these.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Accepts connections and serves each on a task of its own.
#[derive(Debug)]
pub struct Acceptor {
    connections: Connections,
    slots: Arc<Semaphore>,
    limit: usize,
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
        Self { connections, slots: Arc::new(Semaphore::new(limit)), limit }
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
                Err(error) if is_shortage(&error) => {
                    note_shortage(&error, pause);
                    tokio::select! {
                        () = draining.cancelled() => return,
                        () = sleep(pause) => {}
                    }
                    pause = (pause * 2).min(PAUSE.1);
                }
                Err(error) => debug!(%error, "a connection went away before it was accepted"),
            }
        }
    }

    fn admit(&self, stream: UnixStream) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return debug!(limit = self.limit, "one connection too many was closed (`limits.connections`)");
        };
        let connections = self.connections.clone();
        self.connections.tasks.spawn(async move {
            connections.serve(stream).await;
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
