//! Watches the socket's path, and publishes the socket again if it was removed.

use std::{
    fs::File,
    io, mem,
    os::unix::net::UnixListener as StdListener,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, TryLockError},
    time::Duration,
};

use tokio::{net::UnixListener, sync::watch, task::spawn_blocking};
use tracing::{info, warn};

use crate::{
    publication::{Publication, lock},
    socket_place::{FileId, SocketError},
};

/// Interval between checks. A removed socket is back within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Looks that find the socket and its lock gone, until it counts as lost: a minute.
const LOST: u32 = 30;

/// Where the socket comes from.
#[derive(Debug)]
pub enum SocketOrigin {
    /// A socket that the broker published.
    Published(Publication),
    /// A socket that systemd holds, with its path at the start.
    Inherited(PathBuf),
}

/// Watches the path of the socket. Clones share it.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<Mutex<WatchedSocket>>);

#[derive(Debug)]
struct WatchedSocket {
    origin: SocketOrigin,
    /// For systemd's socket: the file at its path at the start.
    inherited: Option<FileId>,
    /// Next to systemd's socket, if it could be taken: clients wait for a broker that holds it.
    _lock: Option<File>,
    is_withdrawn: bool,
    /// What was logged last; empty if nothing is wrong.
    reported: String,
    /// Looks in a row that found the socket and its lock gone.
    lost: u32,
}

impl Keeper {
    /// Watches the path of a socket. When the last clone is dropped, a published path is removed.
    pub fn new(origin: SocketOrigin) -> Self {
        let (inherited, lock) = match &origin {
            SocketOrigin::Published(_) => (None, None),
            SocketOrigin::Inherited(path) => (FileId::find(path).ok().flatten(), lock(path).ok()),
        };
        Self(Arc::new(Mutex::new(WatchedSocket {
            origin,
            inherited,
            _lock: lock.map(|(lock, _)| lock),
            is_withdrawn: false,
            reported: String::new(),
            lost: 0,
        })))
    }

    /// Whether the socket has been gone for a minute with its lock, so that it is never published again.
    pub fn is_lost(&self) -> bool {
        // Not while a look hangs.
        self.0.try_lock().is_ok_and(|watched| watched.lost >= LOST)
    }

    /// Removes the names of a published socket, which stays open, and does not publish it again. Touches the file system.
    pub fn withdraw(&self) {
        // What a look changes is whole at any time, so a poisoned lock is still usable.
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.is_withdrawn = true;
        watched.reported.clear();
        if let SocketOrigin::Published(publication) = &watched.origin {
            publication.remove_names();
        }
    }

    /// Looks whenever `tick` has waited for the interval, and sends each new listener to `listeners`. Established
    /// connections continue. Runs until the future is dropped or `is_over`.
    pub async fn run<F: Future<Output = ()>>(
        &self,
        listeners: &watch::Sender<Arc<UnixListener>>,
        tick: impl Fn(Duration) -> F,
        is_over: impl Fn() -> bool,
    ) {
        while !is_over() {
            tick(LOOK_EVERY).await;
            let (watched, listeners) = (Arc::clone(&self.0), listeners.clone());
            // Not waited for, so that an idle broker wakes for nothing: the directory may be on a mount that hangs.
            drop(spawn_blocking(move || match watched.try_lock() {
                Ok(mut watched) => watched.look_and_report(&listeners),
                Err(TryLockError::Poisoned(watched)) => watched.into_inner().look_and_report(&listeners),
                // The look before hangs.
                Err(TryLockError::WouldBlock) => {}
            }));
        }
    }
}

impl WatchedSocket {
    /// The new listener, if the socket was published again. `Err`: why the path is lost or unsafe. It stays as it is.
    fn look(&mut self) -> Result<Option<StdListener>, String> {
        let before = mem::take(&mut self.lost);
        if self.is_withdrawn {
            return Ok(None);
        }
        let publication = match &mut self.origin {
            SocketOrigin::Published(publication) => publication,
            SocketOrigin::Inherited(path) => {
                let found = FileId::find(path).map_err(|error| unreadable(path, &error))?;
                if self.inherited.is_some() && found != self.inherited {
                    return Err(lost(path, "; systemd holds it, so restart its .socket unit"));
                }
                return Ok(None);
            }
        };
        let path = publication.place.options.path.clone();
        // An error does not mean that the socket is gone.
        if publication.has_its_names().map_err(|error| unreadable(&path, &error))? {
            return publication.place.check().map(|()| None).map_err(|error| {
                format!("the socket's directory is no longer safe, and clients refuse it: {}", chain(&error))
            });
        }
        if !publication.is_locked().map_err(|error| unreadable(&path, &error))? {
            self.lost = before.saturating_add(1);
            let lock = publication.lock_path.display();
            let why = "another broker may own the name, so it is not published again; this broker ends in a minute if no client can reach it";
            return Err(lost(&path, &format!(", and the lock {lock} too: {why}")));
        }
        publication.publish_again().map(Some).map_err(|error| match error {
            SocketError::AlreadyRunning(path) => {
                lost(&path, "; another process listens on it, so it is not published again")
            }
            error => {
                let refused = "the socket was removed or replaced and cannot be published again";
                format!("{refused}: {}", chain(&error))
            }
        })
    }

    fn look_and_report(&mut self, listeners: &watch::Sender<Arc<UnixListener>>) {
        match self.look() {
            Ok(None) => {
                if !self.reported.is_empty() {
                    info!("the name of the socket belongs to this broker again");
                    self.reported.clear();
                }
            }
            Ok(Some(listener)) => {
                self.reported.clear();
                match listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)) {
                    Ok(listener) => {
                        warn!("the socket was removed or replaced: it is published again");
                        listeners.send_replace(Arc::new(listener));
                    }
                    Err(error) => {
                        warn!(%error, "cannot listen on the socket that was published again");
                        // The next look publishes it again.
                        if let SocketOrigin::Published(publication) = &self.origin {
                            publication.remove_names();
                        }
                    }
                }
            }
            Err(why) => {
                if why != self.reported {
                    warn!("{why}");
                    self.reported = why;
                }
            }
        }
    }
}

fn lost(path: &Path, why: &str) -> String {
    format!("the socket {} was removed or replaced{why}", path.display())
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!("the socket {path} cannot be looked up: {error}; check that the broker may search its directory")
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
