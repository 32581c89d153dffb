//! The accept loop: it limits the number of connections, and waits when file descriptors run out.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::net::SocketFlags;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use super::{
    access::{Access, Policies},
    connection::{Connections, Refusal},
    identity::{Identities, Identity},
    peer::Peer,
    places::{ConnectionLimits, Full, Holding, Place, Places},
    service::Services,
    socket::BACKLOG,
    traffic::{Traffic, Watchdog},
};
use crate::{
    clock::{self, Beat},
    exec::LiveRuns,
};

/// Shortest and longest pause after a failed accept. Each further failure doubles the pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// A lack of places is logged once in this time, not for each connection.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// Time for a refused peer to read its error.
const FAREWELL: Duration = Duration::from_secs(5);

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

    fn admit(&self, number: usize, stream: UnixStream) {
        let identity = match self.identities.of(&stream, number) {
            Ok(identity) => identity,
            Err(error) => return debug!(%error, "a connection without an identity was closed"),
        };
        let Identity { peer, principal, is_of_a_run } = identity;
        let access = Arc::new(Access::new(peer, principal, self.policies.clone()));
        // Each connection has a separate token, because each of its polls locks the token.
        let (end, now) = (self.connections.draining.child_token(), clock::coarse());
        let place =
            if is_of_a_run { Err(Refusal::Descendant) } else { self.place(&access, end.clone(), now) };
        let (refusal, place, traffic) = match place {
            Ok((place, traffic)) => (None, place, traffic),
            Err(refusal) => {
                let Some(place) = self.places.refuse() else {
                    return debug!(
                        uid = peer.uid,
                        "a connection was closed: too many are refused at the moment"
                    );
                };
                (Some(refusal), place, Traffic::new(end, Holding::default(), now))
            }
        };
        let serve = self.connections.clone().serve(stream, access, traffic, refusal);
        self.connections.tasks.spawn(async move {
            if refusal.is_none() {
                serve.await;
            } else if timeout(FAREWELL, serve).await.is_err() {
                debug!(uid = peer.uid, "a peer that is refused stayed; its connection was closed");
            }
            drop(place);
        });
    }

    /// Takes a place for a connection. The broker's own user and root may always try, because they may ask for its health.
    fn place(
        &self,
        access: &Access,
        end: CancellationToken,
        now: Duration,
    ) -> Result<(Place, Arc<Traffic>), Refusal> {
        let peer = &access.peer;
        if access.rights().is_empty() && !access.may_ask_for_health() {
            return Err(Refusal::Denied);
        }
        self.places.take(peer, end, now).map_err(|full| {
            let (seconds, noted) = (now.as_secs(), self.noted.load(Ordering::Relaxed));
            if noted == 0 || seconds.saturating_sub(noted) >= NOTE_EVERY.as_secs() {
                self.noted.store(seconds.max(1), Ordering::Relaxed);
                note_full(peer, full);
            }
            Refusal::Full(full)
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

/// Logs once per shortage, not once per attempt.
fn note_shortage(error: &io::Error, pause: Duration) {
    if pause == PAUSE.0 {
        warn!(%error, "no connection can be accepted; trying again until something is given back");
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream as StdStream, path::Path};

    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::access::Policy;

    /// A connection whose peer has sent its preface, SETTINGS and `more`.
    fn connect(path: &Path, more: &[u8]) -> UnixStream {
        let mut stream = StdStream::connect(path).unwrap();
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(&[hello, more].concat()).unwrap();
        stream.set_nonblocking(true).unwrap();
        UnixStream::from_std(stream).unwrap()
    }

    fn acceptor(draining: &CancellationToken) -> Acceptor {
        let policies = watch::Sender::new(Arc::new(Policy::new([])));
        let admission =
            Admission { policies: policies.subscribe(), listeners: Vec::new(), runs: LiveRuns::default() };
        let limits = ConnectionLimits::for_tests(10);
        Acceptor::new(Services::none(), admission, limits, TaskTracker::new(), draining.clone())
    }

    async fn gets_settings(peer: &mut UnixStream) {
        let mut settings = [0; 9];
        let read = peer.read_exact(&mut settings);
        timeout(Duration::from_secs(20), read).await.expect("SETTINGS in time").unwrap();
        assert_eq!(settings[3], 4, "SETTINGS");
    }

    #[tokio::test]
    async fn settings_do_not_wait_for_an_answer_that_takes_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let draining = CancellationToken::new();
        let acceptor = acceptor(&draining);
        let listeners = watch::Sender::new(Arc::new(UnixListener::bind(&path).unwrap()));
        // The first call of a connection: POST http /, without its body.
        let call = b"\0\0\x03\x01\x04\0\0\0\x01\x83\x86\x84";
        let peers = [connect(&path, call), connect(&path, &call[..10])];
        let served = async {
            for mut peer in peers {
                gets_settings(&mut peer).await;
            }
            draining.cancel();
        };
        tokio::join!(acceptor.run(0, listeners.subscribe()), served);
    }

    #[tokio::test]
    async fn those_that_wait_at_a_listener_that_is_replaced_are_served() {
        let directory = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        let draining = CancellationToken::new();
        let acceptor = acceptor(&draining);
        let listeners = watch::Sender::new(Arc::new(UnixListener::bind(&old).unwrap()));
        let mut accepting = Box::pin(acceptor.run(0, listeners.subscribe()));
        assert!(futures_util::poll!(&mut accepting).is_pending());
        let waiting = connect(&old, &[]);
        listeners.send_replace(Arc::new(UnixListener::bind(&new).unwrap()));
        let late = connect(&new, &[]);
        let served = async {
            for mut peer in [waiting, late] {
                gets_settings(&mut peer).await;
            }
            draining.cancel();
        };
        tokio::join!(accepting, served);
        assert!(StdStream::connect(&old).is_err(), "the old listener is closed");
    }
}
