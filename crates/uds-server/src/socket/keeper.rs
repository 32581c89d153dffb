//! Watches the socket's path, and publishes the socket again if it was removed.

mod look;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use tokio::{net::UnixListener, sync::watch, task::spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::look::PathState;
use super::{FileId, Publication};

/// Interval between checks. A removed socket is back within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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

impl WatchedSocket {
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
