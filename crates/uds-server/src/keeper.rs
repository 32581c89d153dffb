//! Watches the socket's path, and publishes the socket again if it was removed.

use std::{
    io,
    os::unix::net::UnixListener as StdListener,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use tokio::{net::UnixListener, sync::watch, task::spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    publication::{Publication, SocketNames},
    socket_place::{FileId, SocketError},
};

/// Interval between checks. A removed socket is back within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Number of checks between two connection attempts to another process's socket at our path.
const CHECKS_BETWEEN_CONNECTS: u32 = 15;

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
pub struct Keeper {
    place: Arc<Mutex<WatchedSocket>>,
}

#[derive(Debug)]
struct WatchedSocket {
    place: SocketOrigin,
    /// For systemd's socket: the file at its path at the start.
    inherited: Option<FileId>,
    /// Another process's file at the path, and the number of checks since the last attempt to replace it.
    foreign: Option<(FileId, u32)>,
    is_withdrawn: bool,
    /// What was logged last; empty if nothing is wrong.
    reported: String,
}

impl Keeper {
    /// Watches `place`. When the last clone is dropped, a published path is removed.
    pub fn new(place: SocketOrigin) -> Self {
        let inherited = match &place {
            SocketOrigin::Published(_) => None,
            SocketOrigin::Inherited(path) => FileId::at(path).ok(),
        };
        let watched =
            WatchedSocket { place, inherited, foreign: None, is_withdrawn: false, reported: String::new() };
        Self { place: Arc::new(Mutex::new(watched)) }
    }

    /// Removes the names of a published socket, which stays open, and does not publish it again. Touches the file system.
    pub fn withdraw(&self) {
        let mut watched = self.lock();
        watched.is_withdrawn = true;
        if let SocketOrigin::Published(publication) = &watched.place {
            publication.remove_names();
        }
    }

    /// What a look changes is whole at any time, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, WatchedSocket> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whenever `tick` has waited for the interval, and sends each new listener to `listeners`. Established
    /// connections continue. Returns only if a listener cannot be used.
    pub async fn run<F: Future<Output = ()>>(
        &self,
        listeners: &watch::Sender<Arc<UnixListener>>,
        tick: impl Fn(Duration) -> F,
    ) {
        let unusable = CancellationToken::new();
        loop {
            tokio::select! {
                () = tick(LOOK_EVERY) => {}
                () = unusable.cancelled() => return,
            }
            let (place, listeners) = (Arc::clone(&self.place), listeners.clone());
            let ended = unusable.clone().drop_guard();
            // Not waited for, so that an idle broker wakes for nothing: the directory may be on a mount that hangs.
            drop(spawn_blocking(move || {
                let is_usable = match place.try_lock() {
                    Ok(mut watched) => watched.look_and_report(&listeners),
                    Err(TryLockError::Poisoned(watched)) => watched.into_inner().look_and_report(&listeners),
                    // The look before hangs.
                    Err(TryLockError::WouldBlock) => true,
                };
                if is_usable {
                    ended.disarm();
                }
            }));
        }
    }
}

/// The result of a check.
#[derive(Debug)]
enum PathState {
    Ours,
    /// The socket was published again, with this listener.
    Replaced(StdListener),
    /// The path is lost or unsafe, and stays as it is.
    Lost(PathLoss),
    /// Another process's file is still there.
    Unchanged,
}

/// Why the path is lost or unsafe.
#[derive(Debug, thiserror::Error)]
enum PathLoss {
    #[error("the socket {} was removed or replaced; systemd holds it, so restart its .socket unit", .0.display())]
    Inherited(PathBuf),
    #[error("the socket {} was removed or replaced, and the lock {} too: another broker may own the name, so it is not published again; restart this broker if none does", path.display(), lock.display())]
    Lock { path: PathBuf, lock: PathBuf },
    #[error("the socket {} was removed or replaced; another process listens on it, so it is not published again", .0.display())]
    Foreign(PathBuf),
    #[error("the socket was removed or replaced and cannot be published again")]
    Refused(#[source] SocketError),
    #[error("the socket {} cannot be looked up: {cause}; check that the broker may search its directory", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("the socket's directory is no longer safe, and clients refuse it")]
    Unsafe(#[source] SocketError),
}

impl WatchedSocket {
    fn look(&mut self) -> PathState {
        let Self { place, inherited, foreign, is_withdrawn, .. } = self;
        if *is_withdrawn {
            return PathState::Unchanged;
        }
        let publication = match place {
            SocketOrigin::Inherited(path) => {
                return match FileId::find(path) {
                    Err(cause) => PathState::Lost(PathLoss::Unreadable { path: path.clone(), cause }),
                    Ok(found) if inherited.is_none() || found == *inherited => PathState::Ours,
                    Ok(_) => PathState::Lost(PathLoss::Inherited(path.clone())),
                };
            }
            SocketOrigin::Published(publication) => publication,
        };
        let path = &publication.options.path;
        // An error does not mean that the socket is gone.
        let unreadable = |cause| PathState::Lost(PathLoss::Unreadable { path: path.clone(), cause });
        let at_path = match publication.look() {
            Ok(SocketNames::Astray(at_path)) => at_path,
            Ok(SocketNames::Ours) => {
                *foreign = None;
                let checked = publication.place.check(&publication.options);
                return checked
                    .map_or_else(|error| PathState::Lost(PathLoss::Unsafe(error)), |()| PathState::Ours);
            }
            Err(error) => return unreadable(error),
        };
        match (at_path, foreign.as_mut()) {
            (Some(at_path), Some((known, looks)))
                if *known == at_path && *looks < CHECKS_BETWEEN_CONNECTS =>
            {
                *looks += 1;
                return PathState::Unchanged;
            }
            _ => *foreign = None,
        }
        match publication.lock.is_in_place() {
            Ok(true) => {}
            Ok(false) => {
                return PathState::Lost(PathLoss::Lock {
                    path: path.clone(),
                    lock: publication.lock.path.clone(),
                });
            }
            Err(error) => return unreadable(error),
        }
        match publication.publish_again() {
            Ok(listener) => PathState::Replaced(listener),
            Err(error) => {
                *foreign = at_path.map(|at_path| (at_path, 0));
                PathState::Lost(match error {
                    SocketError::AlreadyRunning { path } => PathLoss::Foreign(path),
                    error => PathLoss::Refused(error),
                })
            }
        }
    }

    /// Returns whether the broker can accept connections.
    fn look_and_report(&mut self, listeners: &watch::Sender<Arc<UnixListener>>) -> bool {
        match self.look() {
            PathState::Unchanged => {}
            PathState::Ours => {
                if !self.reported.is_empty() {
                    info!("the socket's name leads to this broker again");
                    self.reported.clear();
                }
            }
            PathState::Replaced(listener) => {
                self.reported.clear();
                match listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)) {
                    Ok(listener) => {
                        warn!("the socket was removed or replaced: it is published again");
                        listeners.send_replace(Arc::new(listener));
                    }
                    Err(error) => {
                        warn!(%error, "the socket that was published again cannot be listened on");
                        return false;
                    }
                }
            }
            PathState::Lost(loss) => {
                let text = chain(&loss);
                if text != self.reported {
                    warn!("{text}");
                    self.reported = text;
                }
            }
        }
        true
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
