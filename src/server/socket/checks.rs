//! Checks whether the socket may be published at its path.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{
        DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::Path,
};

use rustix::{
    fs::{FlockOperation, Gid, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use super::{LONGEST_PATH, Lock, SocketError, SocketOptions};

pub(super) fn split(path: &Path) -> Result<(&Path, &std::ffi::OsStr), SocketError> {
    let length = path.as_os_str().len();
    match (path.parent(), path.file_name()) {
        _ if length > LONGEST_PATH => Err(SocketError::PathTooLong { path: path.to_owned(), length }),
        (Some(directory), Some(name)) if path.is_absolute() => Ok((directory, name)),
        _ => Err(SocketError::PathInvalid { path: path.to_owned() }),
    }
}

/// Creates the directory, or checks the existing one.
pub(super) fn prepare_directory(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: directory.to_owned(), source };
    let mode = if options.mode & 0o070 == 0 { 0o700 } else { 0o750 };
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(io("create the directory"))?;
        if let Some(group) = options.group {
            let group = Some(Gid::from_raw(group));
            rustix::fs::chown(directory, None, group).map_err(io_error).map_err(io("give its group to"))?;
        }
        // Set explicitly, because the umask could keep out a group that may connect.
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).map_err(io("set the mode of"))?;
    }
    check_directory(directory, options)
}

/// Checks that no other user can replace the socket in `directory`, unless `shared_directory` allows it.
pub(super) fn check_directory(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: directory.to_owned(), source };
    let found = fs::metadata(directory).map_err(io("look at"))?;
    let own = rustix::process::geteuid().as_raw();
    let trusted = [own, 0].contains(&found.uid()) && found.mode() & 0o022 == 0;
    if trusted || options.shared_directory {
        return Ok(());
    }
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    Err(SocketError::Directory { path: directory.to_owned(), owner, mode, own })
}

pub(super) fn lock(directory: &Path, name: &std::ffi::OsStr, path: &Path) -> Result<Lock, SocketError> {
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

fn io_error(error: Errno) -> io::Error {
    error.into()
}
