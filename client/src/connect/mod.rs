//! From a [`Socket`] to a connected stream whose other end is trusted.

#[cfg(target_os = "linux")]
mod linux;
mod platform;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;
mod shared;

use std::{
    borrow::Cow,
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::Error,
    socket::Socket,
    trust::{Distrust, check_server, is_private},
};
use platform::own_uid;
use shared::Refusal;

pub(crate) use platform::Directory;

/// One attempt to connect to the first candidate that exists. The socket's directory is checked before, and the server
/// after connecting; nothing is sent before both. The stream is non-blocking.
///
/// Programs start often, so what most of them need takes no more than that: further checks are in [`shared`].
pub(crate) fn connect(socket: &Socket) -> Result<(UnixStream, Directory), Error> {
    let socket = socket.in_use();
    let unreachable =
        |source: io::Error| Error::Unreachable { socket: Socket::clone(&socket), source: Arc::new(source) };
    let path = first_that_exists(&socket).ok_or_else(|| unreachable(io::ErrorKind::NotFound.into()))?;
    let untrusted = |reason: Distrust| Error::Untrusted { path: path.clone(), reason: reason.into() };

    let (parent, name) = split(&path).map_err(unreachable)?;
    let mut directory = Directory::open(parent).map_err(unreachable)?;
    let mut name = Cow::Borrowed(name);
    if !is_private(directory.owner, directory.mode, own_uid) {
        let chosen = shared::choose(directory, &name, socket.expected_server());
        let (chosen, within) = chosen.map_err(|refusal| match refusal {
            Refusal::Untrusted(reason) => untrusted(reason),
            Refusal::Io(error) => unreachable(error),
        })?;
        (directory, name) = (chosen, Cow::Owned(within));
    }
    let stream = directory.connect(&name).map_err(unreachable)?;
    let server = platform::peer_uid(&stream).map_err(unreachable)?;
    let owner = directory.owner;
    check_server(server, socket.expected_server(), owner, own_uid, platform::maps_every_user)
        .map_err(untrusted)?;
    Ok((stream, directory))
}

/// Whether only this user and root can have made the socket of `stream`, in `directory`, and the process that listens runs
/// as this user: it may then say what this process runs. A read-only mount proves nothing here.
#[cfg(feature = "_blocking")]
pub(crate) fn is_own(stream: &UnixStream, directory: &Directory) -> bool {
    let own = own_uid();
    platform::peer_uid(stream).is_ok_and(|uid| uid == own)
        && is_private(directory.owner, directory.mode, || own)
}

/// A candidate is skipped only if it certainly does not exist. One that may not be looked at is the one that is meant,
/// and the last one is used in any case.
fn first_that_exists(socket: &Socket) -> Option<PathBuf> {
    let absent =
        |error: io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let mut candidates = socket.candidates().peekable();
    while let Some(path) = candidates.next() {
        if candidates.peek().is_none() || !path.symlink_metadata().is_err_and(absent) {
            return Some(path.to_owned());
        }
    }
    None
}

fn split(path: &Path) -> io::Result<(&Path, &Path)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((directory.unwrap_or(Path::new(".")), Path::new(name)))
}

#[cfg(test)]
mod tests;
