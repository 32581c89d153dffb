//! One look at the path.

use std::{io, os::unix::net::UnixListener as StdListener, path::PathBuf};

use super::{SocketOrigin, WatchedSocket};
use crate::socket::{FileId, SocketError, SocketNames};

/// Number of checks between two connection attempts to another process's socket at our path.
pub(super) const CHECKS_BETWEEN_CONNECTS: u32 = 15;

/// The result of a check.
#[derive(Debug)]
pub(super) enum PathState {
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
pub(super) enum PathLoss {
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
    pub(super) fn look(&mut self) -> PathState {
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
}
