//! From a [`Socket`] to a connected stream whose other end is trusted.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
use portable as platform;

use crate::{
    error::Error,
    socket::Socket,
    trust::{TrustError, check_directory, check_server},
};

pub(crate) use platform::Directory;

/// One attempt to connect to the first candidate that exists. The socket's directory is checked before, and the server
/// after connecting; nothing is sent before both. The stream is non-blocking.
pub(crate) fn connect(socket: &Socket) -> Result<(UnixStream, Directory), Error> {
    let unreachable =
        |source: io::Error| Error::Unreachable { socket: socket.clone(), source: Arc::new(source) };
    let path = first_that_exists(socket).ok_or_else(|| unreachable(io::ErrorKind::NotFound.into()))?;
    let untrusted = |reason: TrustError| Error::Untrusted { path: path.clone(), reason };

    let (parent, name) = split(&path).map_err(unreachable)?;
    let directory = Directory::open(parent).map_err(unreachable)?;
    if let Err(reason) = check_directory(directory.owner, directory.mode, own_uid)
        && !directory.is_read_only().map_err(unreachable)?
    {
        return Err(untrusted(reason));
    }
    let stream = directory.connect(name).map_err(unreachable)?;
    let server = platform::peer_uid(&stream).map_err(unreachable)?;
    check_server(server, directory.owner, own_uid).map_err(untrusted)?;
    Ok((stream, directory))
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

/// A system call, made only where it decides.
fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{Permissions, set_permissions},
        os::unix::{fs::PermissionsExt, net::UnixListener},
    };

    use super::*;

    #[test]
    fn a_real_directory_is_judged_by_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("broker.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        connect(&Socket::at(&socket)).unwrap();
        set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let refused = connect(&Socket::at(&socket));
        let writable = TrustError::DirectoryWritable { mode: 0o777 };
        assert!(
            matches!(&refused, Err(Error::Untrusted { path, reason }) if *path == socket && *reason == writable),
            "{refused:?}"
        );
    }

    #[test]
    fn a_directory_on_a_read_only_mount_passes_with_any_owner_and_mode() {
        // /sys is mounted read-only in containers. Elsewhere it belongs to root, so this finds no socket either way.
        let outcome = connect(&Socket::at("/sys/broker.sock"));
        assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    }
}
