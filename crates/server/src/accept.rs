//! The accept loop: it limits the number of connections, and waits when file descriptors run out.

mod admit;

use std::{
    io,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use rustix::net::SocketFlags;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use super::{
    access::Policies,
    connection::Connections,
    identity::Identities,
    places::{ConnectionLimits, Places},
    service::Services,
    socket::BACKLOG,
    traffic::Watchdog,
};
use credbroker_observe::clock::Beat;
use credbroker_runner::LiveRuns;

/// Shortest and longest pause after a failed accept. Each further failure doubles the pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Who is served.
#[derive(Debug)]
pub struct Admission {
    /// The access rules in force.
    pub policies: Policies,
    /// Names of the listeners, in the order of the configuration.
    pub listeners: Vec<Arc<str>>,
    /// Plugin runs, whose processes are not served.
    pub runs: LiveRuns,
}

/// Accepts connections and serves each on a separate task.
#[derive(Debug)]
pub struct Acceptor {
    connections: Connections,
    identities: Identities,
    policies: Policies,
    places: Arc<Places>,
    /// When a lack of places was logged last, in seconds of [`clock::coarse`].
    noted: AtomicU64,
}

impl Acceptor {
    /// Serves connections within `limits`. Refuses further ones.
    pub fn new(
        services: Services,
        admission: Admission,
        limits: ConnectionLimits,
        tasks: TaskTracker,
        draining: CancellationToken,
    ) -> Self {
        let (watches, watchdog) = (limits.watches_per_connection, Watchdog::default());
        let connections = Connections { services, watches, tasks, draining, watchdog };
        Self {
            connections,
            identities: Identities::new(admission.listeners, admission.runs),
            policies: admission.policies,
            places: Arc::new(Places::new(limits)),
            noted: AtomicU64::new(0),
        }
    }

    /// Whether the broker can identify its own user. It cannot if the kernel uses that uid for all users that it cannot map.
    pub fn identifies_its_own(&self) -> bool {
        self.identities.identify_own()
    }

    /// Ends connections whose peers stop reading their answers. Runs until the future is dropped.
    pub async fn watch_over(&self, beat: Beat) {
        self.connections.watchdog.run(beat).await;
    }

    /// Accepts connections from the newest of `listeners`, which belong to the listener of that number in the
    /// configuration, until the broker drains. That listener stays open until its sender is dropped: if systemd holds it
    /// too, later connections wait in its backlog for the next broker.
    pub async fn run(&self, number: usize, mut listeners: watch::Receiver<Arc<UnixListener>>) {
        let draining = &self.connections.draining;
        let mut pause = PAUSE.0;
        let mut listener = Arc::clone(&listeners.borrow_and_update());
        loop {
            let accepted = tokio::select! {
                biased;
                () = draining.cancelled() => return,
                Ok(()) = listeners.changed() => {
                    let newer = Arc::clone(&listeners.borrow_and_update());
                    let older = std::mem::replace(&mut listener, newer);
                    self.accept_the_rest(number, &older);
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    if pause > PAUSE.0 {
                        info!("connections are accepted again");
                    }
                    pause = PAUSE.0;
                    self.admit(number, stream);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    debug!(%error, "a connection went away before it was accepted");
                }
                // Descriptors or memory ran out, or worse. An immediate retry would only use CPU time.
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

    /// Accepts the connections that wait at `listener`, which has no name any longer.
    pub fn accept_the_rest(&self, number: usize, listener: &UnixListener) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..BACKLOG {
            let Ok(socket) = rustix::net::accept_with(listener, flags) else { return };
            match UnixStream::from_std(socket.into()) {
                Ok(stream) => self.admit(number, stream),
                Err(error) => debug!(%error, "a connection was lost with its listener"),
            }
        }
    }

    /// A connection of the broker to itself, which is served like any other one of the first listener.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (stream, own) = UnixStream::pair()?;
        self.admit(0, stream);
        Ok(own)
    }
}

/// Logs once per shortage, not once per attempt.
fn note_shortage(error: &io::Error, pause: Duration) {
    if pause == PAUSE.0 {
        warn!(%error, "no connection can be accepted; trying again until something is given back");
    }
}

#[cfg(test)]
mod tests;
