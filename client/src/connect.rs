//! From a [`Socket`] to a connected stream whose other end is trusted.

use std::{
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::io::Errno;
use tokio::net::UnixStream;

use crate::{
    Error, Socket,
    trust::{DirectoryError, Distrust, TrustedDirectory},
};

/// One attempt: the first candidate that exists, its directory checked before and its server after connecting, and
/// nothing sent to it before both.
pub(crate) async fn connect(socket: &Socket) -> Result<UnixStream, Error> {
    let unreachable =
        |source: io::Error| Error::Unreachable { socket: socket.clone(), source: Arc::new(source) };
    let path = first_that_exists(socket).ok_or_else(|| unreachable(Errno::NOENT.into()))?;
    let untrusted = |distrust: Distrust| Error::Untrusted { path: path.clone(), distrust };

    let (directory, name) = split(&path).map_err(unreachable)?;
    let directory = TrustedDirectory::open(directory).map_err(|error| match error {
        DirectoryError::Open(errno) => unreachable(errno.into()),
        DirectoryError::Untrusted(distrust) => untrusted(distrust),
    })?;
    let stream = connect_in(&directory, name).await.map_err(unreachable)?;
    let uid = stream.peer_cred().map_err(unreachable)?.uid();
    directory.judge_server(uid).map_err(untrusted)?;
    Ok(stream)
}

/// Only what is surely absent is passed over: a socket that may not be looked at is the one that is meant.
fn first_that_exists(socket: &Socket) -> Option<PathBuf> {
    let absent =
        |error: io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    socket.candidates().find(|path| !path.symlink_metadata().is_err_and(absent)).map(Path::to_owned)
}

fn split(path: &Path) -> io::Result<(&Path, &Path)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((directory.unwrap_or(Path::new(".")), Path::new(name)))
}

/// Through the descriptor that was checked, so that nobody can put another directory in between; it also lifts the
/// limit of 107 bytes on the path of a socket.
async fn connect_in(directory: &TrustedDirectory, name: &Path) -> io::Result<UnixStream> {
    let descriptors = Path::new("/proc/self/fd");
    let held = descriptors.join(directory.descriptor.as_raw_fd().to_string());
    match UnixStream::connect(held.join(name)).await {
        // A chroot without /proc: the path itself is all there is.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !descriptors.exists() => {
            UnixStream::connect(directory.path().join(name)).await
        }
        outcome => outcome,
    }
}
