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

use super::{FileId, Names, Publication, SocketError};
use crate::{clock::Beat, text::chain};

/// Interval between checks. A removed socket is back within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Number of checks between two connection attempts to another process's socket at our path.
const PATIENCE: u32 = 15;

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

/// The result of a check.
#[derive(Debug)]
enum Found {
    Ours,
    /// The socket was published again, with this listener.
    Replaced(StdListener),
    /// The path is lost or unsafe, and stays as it is.
    Lost(Loss),
    /// Another process's file is still there.
    Unchanged,
}

/// Why the path is lost or unsafe.
#[derive(Debug, thiserror::Error)]
enum Loss {
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

    /// Sends each new listener to `listeners`. Established connections continue. Returns only if a listener cannot be used.
    pub async fn run(&self, listeners: &watch::Sender<Arc<UnixListener>>, beat: Beat) {
        let unusable = CancellationToken::new();
        loop {
            tokio::select! {
                () = beat.next(LOOK_EVERY) => {}
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
            Found::Unchanged => {}
            Found::Ours => {
                if !self.reported.is_empty() {
                    info!("the socket's name leads to this broker again");
                    self.reported.clear();
                }
            }
            Found::Replaced(listener) => {
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
            Found::Lost(loss) => {
                let text = chain(&loss);
                if text != self.reported {
                    warn!("{text}");
                    self.reported = text;
                }
            }
        }
        true
    }

    fn look(&mut self) -> Found {
        let Self { place, inherited, foreign, is_withdrawn, .. } = self;
        if *is_withdrawn {
            return Found::Unchanged;
        }
        let publication = match place {
            SocketOrigin::Inherited(path) => {
                return match FileId::find(path) {
                    Err(cause) => Found::Lost(Loss::Unreadable { path: path.clone(), cause }),
                    Ok(found) if inherited.is_none() || found == *inherited => Found::Ours,
                    Ok(_) => Found::Lost(Loss::Inherited(path.clone())),
                };
            }
            SocketOrigin::Published(publication) => publication,
        };
        let path = &publication.options.path;
        // An error does not mean that the socket is gone.
        let unreadable = |cause| Found::Lost(Loss::Unreadable { path: path.clone(), cause });
        let at_path = match publication.look() {
            Ok(Names::Astray(at_path)) => at_path,
            Ok(Names::Ours) => {
                *foreign = None;
                let checked = publication.place.check(&publication.options);
                return checked.map_or_else(|error| Found::Lost(Loss::Unsafe(error)), |()| Found::Ours);
            }
            Err(error) => return unreadable(error),
        };
        match (at_path, foreign.as_mut()) {
            (Some(at_path), Some((known, looks))) if *known == at_path && *looks < PATIENCE => {
                *looks += 1;
                return Found::Unchanged;
            }
            _ => *foreign = None,
        }
        match publication.lock.is_in_place() {
            Ok(true) => {}
            Ok(false) => {
                return Found::Lost(Loss::Lock { path: path.clone(), lock: publication.lock.path.clone() });
            }
            Err(error) => return unreadable(error),
        }
        match publication.publish_again() {
            Ok(listener) => Found::Replaced(listener),
            Err(error) => {
                *foreign = at_path.map(|at_path| (at_path, 0));
                Found::Lost(match error {
                    SocketError::AlreadyRunning { path } => Loss::Foreign(path),
                    error => Loss::Refused(error),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{
            fs::{DirBuilderExt as _, symlink},
            net::UnixStream,
        },
    };

    use super::*;
    use crate::server::socket::{SocketOptions, publish};

    fn directory() -> tempfile::TempDir {
        credbroker_test_support::private_directory()
    }

    fn look(keeper: &Keeper) -> Found {
        keeper.lock().look()
    }

    fn published(path: &std::path::Path) -> (StdListener, Keeper) {
        let options = SocketOptions { path: path.into(), mode: 0o600, group: None, shared_directory: false };
        let (listener, publication) = publish(&options).unwrap();
        (listener, Keeper::new(SocketOrigin::Published(publication)))
    }

    #[test]
    fn a_socket_of_systemds_is_only_watched() {
        let root = directory();
        let path = root.path().join("socket");
        let _held = StdListener::bind(&path).unwrap();
        let keeper = Keeper::new(SocketOrigin::Inherited(path.clone()));
        assert!(matches!(look(&keeper), Found::Ours));
        fs::rename(&path, root.path().join("elsewhere")).unwrap();
        assert!(matches!(look(&keeper), Found::Lost(Loss::Inherited(_))));
        assert!(!path.exists());
        fs::rename(root.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(look(&keeper), Found::Ours), "as it was");
    }

    #[test]
    fn a_socket_that_cannot_be_looked_up_is_not_taken_for_a_removed_one() {
        let root = directory();
        let home = root.path().join("home");
        fs::DirBuilder::new().mode(0o700).create(&home).unwrap();
        let path = home.join("socket");
        let (_published, keeper) = published(&path);
        let other = home.join("other");
        let _held = StdListener::bind(&other).unwrap();
        let inherited = Keeper::new(SocketOrigin::Inherited(other));
        fs::rename(&home, root.path().join("elsewhere")).unwrap();
        symlink(&home, &home).unwrap(); // a loop, so that a lookup is an error
        for keeper in [&keeper, &inherited] {
            assert!(matches!(look(keeper), Found::Lost(Loss::Unreadable { .. })));
        }
        fs::remove_file(&home).unwrap();
        fs::rename(root.path().join("elsewhere"), &home).unwrap();
        for keeper in [&keeper, &inherited] {
            assert!(matches!(look(keeper), Found::Ours));
        }
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_reported_until_it_is_safe_again() {
        use std::os::unix::fs::PermissionsExt as _;

        let root = directory();
        let (_ours, keeper) = published(&root.path().join("socket"));
        let allow = |mode| fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
        allow(0o777);
        let Found::Lost(loss) = look(&keeper) else { panic!("it is unsafe") };
        assert!(chain(&loss).contains("mode 0777"), "{}", chain(&loss));
        allow(0o700);
        assert!(matches!(look(&keeper), Found::Ours));
    }

    #[test]
    fn a_name_that_was_removed_leads_to_the_new_listener() {
        let root = directory();
        let path = root.path().join("socket");
        let (_old, keeper) = published(&path);
        assert!(matches!(look(&keeper), Found::Ours));
        fs::remove_file(&path).unwrap();
        let Found::Replaced(new) = look(&keeper) else { panic!("published again") };
        let _peer = UnixStream::connect(&path).unwrap();
        new.set_nonblocking(true).unwrap();
        assert!(new.accept().is_ok());
        assert!(matches!(look(&keeper), Found::Ours));
        drop(keeper);
        assert!(!path.exists(), "the newest name is removed at the end");
    }

    #[test]
    fn a_socket_that_was_withdrawn_has_no_name_and_gets_none() {
        let root = directory();
        let path = root.path().join("socket");
        let (listener, keeper) = published(&path);
        let _waiting = UnixStream::connect(&path).unwrap();
        keeper.withdraw();
        assert!(!path.exists());
        assert!(matches!(look(&keeper), Found::Unchanged));
        assert!(!path.exists() && listener.accept().is_ok(), "it is open");
    }

    #[test]
    fn a_live_socket_of_another_process_is_checked_now_and_then() {
        let root = directory();
        let path = root.path().join("socket");
        let (_ours, keeper) = published(&path);
        fs::remove_file(&path).unwrap();
        let foreign = StdListener::bind(&path).unwrap();
        assert!(matches!(look(&keeper), Found::Lost(Loss::Foreign(_))));
        for _ in 0..PATIENCE {
            assert!(matches!(look(&keeper), Found::Unchanged));
        }
        assert!(matches!(look(&keeper), Found::Lost(Loss::Foreign(_))));
        drop(foreign); // its name stays, without a listener
        // A process that another test starts may briefly hold a copy of the listener.
        let replaced = (0..1_000_000).any(|_| matches!(look(&keeper), Found::Replaced(_)));
        assert!(replaced);
    }
}
