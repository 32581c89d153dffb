//! Checks whether the socket may be published at its path.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use super::{LONGEST_PATH, Lock, SocketError};

pub(super) fn split(path: &Path) -> Result<(&Path, &std::ffi::OsStr), SocketError> {
    let length = path.as_os_str().len();
    match (path.parent(), path.file_name()) {
        _ if length > LONGEST_PATH => Err(SocketError::PathTooLong { path: path.to_owned(), length }),
        (Some(directory), Some(name)) if path.is_absolute() => Ok((directory, name)),
        _ => Err(SocketError::PathInvalid { path: path.to_owned() }),
    }
}

/// Takes the lock beside `socket`, which is published as `path`.
pub(super) fn lock(socket: &Path, path: &Path) -> Result<Lock, SocketError> {
    let (directory, name) = split(socket)?;
    let mut file = std::ffi::OsString::from(".");
    file.push(name);
    file.push(".lock");
    let file = directory.join(file);
    let io = |source| SocketError::Io { action: "open the lock", path: file.clone(), source };
    let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    let lock = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nofollow)
        .open(&file)
        .map_err(io)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { path: file, file: lock }),
        Err(Errno::WOULDBLOCK) => Err(SocketError::AlreadyRunning { path: path.to_owned() }),
        Err(error) => Err(io(error.into())),
    }
}

/// Refuses to replace anything at `path` except a socket without a listener.
pub(super) fn refuse_what_is_not_ours(path: &Path) -> Result<(), SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io("look at")(error)),
        Ok(found) if !found.file_type().is_socket() => {
            Err(SocketError::ForeignFile { path: path.to_owned() })
        }
        Ok(_) => match connect(path) {
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            Ok(()) | Err(Errno::AGAIN) => Err(SocketError::AlreadyRunning { path: path.to_owned() }),
            Err(error) => Err(io("find out who listens on")(error.into())),
        },
    }
}

/// Connects without blocking. A full backlog returns `EAGAIN`.
fn connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}
