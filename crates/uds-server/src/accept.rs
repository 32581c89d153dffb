//! The accept loop: it limits the number of connections, and waits when file descriptors run out.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    account::{Full, Refusal, Who},
    connection::serve,
    exchange::Exchanges,
    identity::Identities,
    linux::{Peer, accept_now, coarse},
    places::{Limits, Places},
    program::Program,
    publication::BACKLOG,
    traffic::{Traffic, WatchSlots},
};

const PAUSE: Duration = Duration::from_millis(100);

/// A lack of places is logged once in this time, not for each connection.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// Time for a refused peer to read its error.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts connections and serves each on a separate task.
#[derive(Debug)]
pub struct Acceptor<P> {
    program: Arc<P>,
    tasks: TaskTracker,
    draining: CancellationToken,
    identities: Arc<Identities>,
    places: Arc<Places>,
    /// When that was, in seconds of [`coarse`].
    noted: AtomicU64,
}

impl<P: Program> Acceptor<P> {
    /// Serves `program` on connections within `limits`. Refuses further ones.
    pub fn new(program: Arc<P>, limits: Limits, tasks: TaskTracker, draining: CancellationToken) -> Self {
        let places = Arc::new(Places::new(limits));
        Self { program, tasks, draining, identities: Identities::new(), places, noted: AtomicU64::new(0) }
    }

    /// Whether the user of this process can be identified: not if the kernel uses that uid for all users that it cannot map.
    pub fn identifies_its_own(&self) -> bool {
        self.identities.identify_own()
    }

    /// Ends connections whose peers stop reading their answers. It looks whenever `tick` has waited for the interval, and
    /// runs until the future is dropped.
    pub async fn watch_over<F: Future<Output = ()>>(&self, tick: impl Fn(Duration) -> F) {
        self.places.watch_over(tick).await;
    }

    /// Accepts connections from the newest of `listeners`, which belong to the listener of that number in the
    /// configuration, until the server drains. That listener stays open until its sender is dropped: if systemd holds it
    /// too, later connections wait in its backlog for the next process.
    pub async fn run(&self, number: usize, listeners: watch::Receiver<Arc<UnixListener>>) {
        accept_each(&self.draining, listeners, |stream| self.admit(number, stream)).await;
    }

    /// Accepts the connections that wait at `listener`, which has no name any longer.
    pub fn accept_the_rest(&self, number: usize, listener: &UnixListener) {
        accept_the_rest(listener, &|stream| self.admit(number, stream));
    }

    /// A connection of the process to itself, which is served like any other one of the first listener.
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
        let peer = identity.peer;
        let (known, is_welcome) = self.program.meet(identity);
        // Each connection has a separate token, because each of its polls locks the token.
        let (end, now) = (self.draining.child_token(), coarse());
        let placed = if is_welcome {
            let placed = self.places.take(&peer, end.clone(), now);
            placed.inspect_err(|full| self.note_full(&peer, *full, now)).map_err(Refusal::Full)
        } else {
            // For a peer whom the program admits by its first call: it is to connect again.
            Err(Refusal::Draining)
        };
        let (refusal, place, traffic) = match placed {
            Ok((place, traffic)) => (None, place, traffic),
            Err(refusal) => {
                let Some(place) = self.places.refuse() else {
                    debug!(uid = peer.uid, "a connection was closed: too many are refused at the moment");
                    return;
                };
                (Some(refusal), place, Traffic::new(end, Arc::default(), now))
            }
        };
        let is_refused = refusal.is_some();
        let (program, watches) = (Arc::clone(&self.program), WatchSlots::new(self.draining.clone()));
        let (known, denials) = (Arc::new(known), 0.into());
        let exchanges = Exchanges { program, watches, peer: known, refusal, traffic, denials };
        let serve = serve(stream, peer, Arc::new(exchanges), self.tasks.clone());
        self.tasks.spawn(async move {
            if !is_refused {
                serve.await;
            } else if timeout(REFUSAL_TIMEOUT, serve).await.is_err() {
                debug!(uid = peer.uid, "a refused peer did not disconnect; its connection was closed");
            }
            drop(place);
        });
    }

    fn note_full(&self, peer: &Peer, Full { limit, who, most }: Full, now: Duration) {
        let (seconds, noted) = (now.as_secs(), self.noted.load(Ordering::Relaxed));
        if noted != 0 && seconds.saturating_sub(noted) < NOTE_EVERY.as_secs() {
            return;
        }
        self.noted.store(seconds.max(1), Ordering::Relaxed);
        let (uid, pid) = (peer.uid, peer.pid);
        if who == Who::All {
            warn!(?limit, most, "no more connections are served until one is closed or idle");
        } else {
            warn!(?limit, most, ?who, uid, pid, "a peer has its share of connections, and gets no more");
        }
    }
}

/// A socket that connections wait at.
pub trait Listener: Send + Sync + 'static {
    /// What it accepts.
    type Stream: Send;

    /// Accepts a connection. Cancel safe.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Accepts a connection that waits already.
    fn accept_now(&self) -> io::Result<Self::Stream>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Self::accept(self).await.map(|(stream, _)| stream)
    }

    fn accept_now(&self) -> io::Result<UnixStream> {
        UnixStream::from_std(accept_now(self)?.into())
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        Self::accept(self).await.map(|(stream, _)| stream)
    }

    fn accept_now(&self) -> io::Result<TcpStream> {
        TcpStream::from_std(accept_now(self)?.into())
    }
}

/// Gives `admit` each connection to the newest of `listeners`, until the server drains. A listener stays open until its
/// sender is dropped.
pub async fn accept_each<L: Listener>(
    draining: &CancellationToken,
    mut listeners: watch::Receiver<Arc<L>>,
    admit: impl Fn(L::Stream),
) {
    let mut is_short = false;
    let mut listener = Arc::clone(&listeners.borrow_and_update());
    loop {
        let accepted = tokio::select! {
            biased;
            () = draining.cancelled() => return,
            Ok(()) = listeners.changed() => {
                let newer = Arc::clone(&listeners.borrow_and_update());
                let older = std::mem::replace(&mut listener, newer);
                accept_the_rest(&*older, &admit);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                if std::mem::take(&mut is_short) {
                    info!("connections are accepted again");
                }
                admit(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                debug!(%error, "a connection ended before it was accepted");
            }
            // Descriptors or memory ran out, or worse. An immediate retry would only use CPU time.
            Err(error) => {
                // Once per shortage, not once per attempt.
                if !std::mem::replace(&mut is_short, true) {
                    warn!(%error, "no connection can be accepted; trying again until file descriptors or memory are free");
                }
                tokio::select! {
                    () = draining.cancelled() => return,
                    () = sleep(PAUSE) => {}
                }
            }
        }
    }
}

/// Gives `admit` the connections that wait at `listener`, which has no name any longer.
pub fn accept_the_rest<L: Listener>(listener: &L, admit: &impl Fn(L::Stream)) {
    for _ in 0..BACKLOG {
        match listener.accept_now() {
            Ok(stream) => admit(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                debug!(%error, "a connection was lost with its listener");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
