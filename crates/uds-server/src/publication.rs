//! Publishes the socket. It never has a wider mode than the configured one, and no other user's file is changed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use credbroker_client::paths::locks;
use rustix::{fs::OFlags, io::Errno};

use crate::{
    linux::{self, HeldFile},
    socket_place::{FileId, SocketError, SocketOptions, SocketPlace, io_error, own, unless_absent},
};

/// Connections that may wait to be accepted. It must hold 200 shims that start in parallel.
pub(crate) const BACKLOG: i32 = 4096;

/// How long a broker that ends may keep the lock: it drains for ten seconds.
const SUCCESSION: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(5);

/// A published socket. Dropping it removes its names if they still lead to it.
#[derive(Debug)]
pub struct Publication {
    pub(crate) place: SocketPlace,
    socket: FileId,
    /// The lock file next to the socket, held until the broker ends. Of brokers that start in parallel, one gets it.
    lock: File,
    pub(crate) lock_path: PathBuf,
}

impl Publication {
    /// Publishes a new socket, because a name no longer leads to the old one. After an error, nothing was changed.
    pub(crate) fn publish_again(&mut self) -> Result<UnixListener, SocketError> {
        self.place = SocketPlace::prepare(&self.place.options)?;
        let (listener, socket) = bind(&self.place, Some(self.socket))?;
        self.socket = socket;
        Ok(listener)
    }

    /// Removes the names that lead to the socket.
    pub(crate) fn remove_names(&self) {
        for name in self.place.names() {
            if FileId::find(name).is_ok_and(|found| found == Some(self.socket)) {
                let _gone = fs::remove_file(name);
            }
        }
    }

    /// Whether all names lead to the socket.
    pub(crate) fn has_its_names(&self) -> io::Result<bool> {
        for name in self.place.names() {
            if FileId::find(name)? != Some(self.socket) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the path of the lock still names it. Otherwise another broker may hold a new lock at that path.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        let held = FileId::of(&self.lock.metadata()?);
        Ok(FileId::find(&self.lock_path)? == Some(held))
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.remove_names();
    }
}

/// Publishes the socket, unless another broker uses the path. Blocks while one ends that no longer listens there.
pub fn publish(options: &SocketOptions) -> Result<(UnixListener, Publication), SocketError> {
    let place = SocketPlace::prepare(options)?;
    let until = linux::coarse() + SUCCESSION;
    let (lock, lock_path) = loop {
        match lock(&place.socket) {
            Err(SocketError::AlreadyRunning(_)) if linux::coarse() < until && !is_listening(&place) => {
                sleep(PAUSE);
            }
            taken => break taken?,
        }
    };
    let (listener, socket) = bind(&place, None)?;
    Ok((listener, Publication { place, socket, lock, lock_path }))
}

fn is_listening(place: &SocketPlace) -> bool {
    place.names().any(|name| !matches!(linux::connect_now(name), Err(Errno::CONNREFUSED | Errno::NOENT)))
}

/// Binds a temporary path in the socket's directory, sets mode and group, listens, and renames it into place. `own` is a
/// socket of this broker that the new one replaces.
fn bind(place: &SocketPlace, own: Option<FileId>) -> Result<(UnixListener, FileId), SocketError> {
    for name in place.names() {
        if own.is_none() || FileId::find(name).ok().flatten() != own {
            refuse_what_is_not_ours(name)?;
        }
    }
    let [path, link] = [&place.socket, &place.options.path];
    let temporary = temporary_beside(path);
    let socket = linux::bind_private(&temporary).map_err(io_error("create the socket", &temporary))?;
    let placed = put_in_place(&socket, &temporary, place).inspect_err(|_| {
        let _gone = fs::remove_file(&temporary);
    })?;
    if link != path {
        add_name(path, link)?;
    }
    Ok((UnixListener::from(socket), placed))
}

fn temporary_beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{:08x}", fastrand::u32(..)))
}

/// Makes `link` a second name of `socket`, in place of a stale socket.
fn add_name(socket: &Path, link: &Path) -> Result<(), SocketError> {
    let temporary = temporary_beside(link);
    let placed = fs::hard_link(socket, &temporary).and_then(|()| fs::rename(&temporary, link));
    placed.map_err(|error| {
        let _gone = fs::remove_file(&temporary);
        io_error("publish", link)(error)
    })
}

/// Listens, and gives the new socket at `temporary` its group, its mode and its name.
fn put_in_place(socket: &OwnedFd, temporary: &Path, place: &SocketPlace) -> Result<FileId, SocketError> {
    let (path, options) = (place.socket.as_path(), &place.options);
    // Uses a descriptor, not the path: in a shared directory another user could replace the file with a link.
    let held = HeldFile::at(temporary).map_err(io_error("look at", path))?;
    let found = held.metadata().map_err(io_error("look at", path))?;
    if !found.file_type().is_socket() || found.uid() != own() {
        return Err(SocketError::ForeignFile(temporary.to_owned()));
    }
    if let Some(group) = options.group {
        held.set_group(group).map_err(io_error("give its group to", path))?;
    }
    if options.mode != found.mode() & 0o7777 {
        held.set_mode(options.mode).map_err(io_error("set the mode of", path))?;
    }
    rustix::net::listen(socket, BACKLOG).map_err(io_error("listen on", path))?;
    fs::rename(temporary, path).map_err(io_error("publish", path))?;
    Ok(FileId::of(&found))
}

/// Takes the lock next to `socket`, by which clients know that a broker runs.
pub(crate) fn lock(socket: &Path) -> Result<(File, PathBuf), SocketError> {
    let [path, _] = locks(socket);
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let lock = options.open(&path).map_err(io_error("open the lock", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok((lock, path)),
        Err(TryLockError::WouldBlock) => Err(SocketError::AlreadyRunning(socket.to_owned())),
        Err(TryLockError::Error(error)) => Err(io_error("open the lock", &path)(error)),
    }
}

/// Refuses to replace anything at `path` except a socket without a listener.
fn refuse_what_is_not_ours(path: &Path) -> Result<(), SocketError> {
    match unless_absent(fs::symlink_metadata(path)).map_err(io_error("look at", path))? {
        None => Ok(()),
        Some(found) if !found.file_type().is_socket() => Err(SocketError::ForeignFile(path.to_owned())),
        Some(_) => match linux::connect_now(path) {
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            Ok(()) | Err(Errno::AGAIN) => Err(SocketError::AlreadyRunning(path.to_owned())),
            Err(error) => Err(io_error("find out who listens on", path)(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    #[test]
    fn a_foreign_file_in_the_place_of_our_new_socket_is_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let [victim, temporary, path] = ["victim", ".temporary", "socket"].map(|name| root.path().join(name));
        fs::write(&victim, "precious").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&victim, &temporary).unwrap();
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
        let options = SocketOptions { path: path.clone(), mode: 0o660, group: None, shared_directory: true };
        let place = SocketPlace { socket: path.clone(), options };
        let error = put_in_place(&socket.unwrap(), &temporary, &place).unwrap_err();
        assert!(matches!(error, SocketError::ForeignFile { .. }), "{error}");
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        assert!(!path.exists());
    }
}
