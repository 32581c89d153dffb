//! From a [`Socket`] to a connected stream whose other end is trusted.

use std::{
    io,
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt::socket_peercred},
};

use crate::{
    Error, Socket,
    trust::{DirectoryError, Distrust, TrustedDirectory},
};

/// One attempt: the first candidate that exists, its directory checked before and its server after connecting, and
/// nothing sent to it before both. The stream is non-blocking, and so is this: a listener whose queue is full is
/// [`io::ErrorKind::WouldBlock`].
pub(crate) fn connect(socket: &Socket) -> Result<(UnixStream, TrustedDirectory), Error> {
    let unreachable =
        |source: io::Error| Error::Unreachable { socket: socket.clone(), source: Arc::new(source) };
    let path = first_that_exists(socket).ok_or_else(|| unreachable(Errno::NOENT.into()))?;
    let untrusted = |distrust: Distrust| Error::Untrusted { path: path.clone(), distrust };

    let (directory, name) = split(&path).map_err(unreachable)?;
    let directory = TrustedDirectory::open(directory).map_err(|error| match error {
        DirectoryError::Open(errno) => unreachable(errno.into()),
        DirectoryError::Untrusted(distrust) => untrusted(distrust),
    })?;
    let stream = connect_in(&directory, name).map_err(|errno| unreachable(errno.into()))?;
    let peer = socket_peercred(&stream).map_err(|errno| unreachable(errno.into()))?;
    directory.judge_server(peer.uid.as_raw()).map_err(untrusted)?;
    Ok((stream, directory))
}

/// Only what is surely absent is passed over: a socket that may not be looked at is the one that is meant. The last one
/// need not be looked at: it is meant in any case.
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

/// Through the descriptor that was checked, so that nobody can put another directory in between; it also lifts the
/// limit of 107 bytes on the path of a socket.
fn connect_in(directory: &TrustedDirectory, name: &Path) -> Result<UnixStream, Errno> {
    let descriptors = Path::new("/proc/self/fd");
    let held = descriptors.join(directory.descriptor.as_raw_fd().to_string());
    match connect_to(&held.join(name)) {
        // A chroot without /proc: the path itself is all there is.
        Err(Errno::NOENT) if !descriptors.exists() => connect_to(&directory.path().join(name)),
        outcome => outcome,
    }
}

fn connect_to(path: &Path) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}
