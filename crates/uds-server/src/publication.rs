//! Publishes the socket. It never has a wider mode than the configured one, and no other user's file is changed.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            fs::{FileTypeExt as _, OpenOptionsExt as _},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use crate::socket_place::{FileId, SocketError, SocketOptions, SocketPlace, split};

/// Connections that may wait to be accepted. It must hold 200 shims that start at once.
pub(crate) const BACKLOG: i32 = 4096;

/// The lock file beside the socket, held until the broker ends. Of brokers that start at once, one gets it.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) path: PathBuf,
    file: File,
}

impl Lock {
    /// Whether the path still names the held lock. Otherwise another broker may hold a new lock at that path.
    pub(crate) fn is_in_place(&self) -> io::Result<bool> {
        let held = FileId::of(&self.file.metadata()?);
        Ok(FileId::find(&self.path)? == Some(held))
    }
}

/// Where the names of a socket lead.
#[derive(Debug)]
pub(crate) enum SocketNames {
    Ours,
    /// One of them leads to another file, or to none.
    Astray(Option<FileId>),
}

/// A published socket. Dropping it removes its names if they still lead to it.
#[derive(Debug)]
pub struct Publication {
    pub(crate) options: SocketOptions,
    pub(crate) place: SocketPlace,
    socket: FileId,
    pub(crate) lock: Lock,
}

impl Publication {
    /// Publishes a new socket, because a name no longer leads to the old one.
    ///
    /// # Errors
    ///
    /// The directory became unsafe, or another process uses the path. Nothing was changed.
    pub(crate) fn publish_again(&mut self) -> Result<UnixListener, SocketError> {
        self.place = SocketPlace::prepare(&self.options)?;
        let (listener, socket) = bind(&self.place, &self.options, Some(self.socket))?;
        self.socket = socket;
        Ok(listener)
    }

    /// Removes the names that lead to the socket.
    pub(crate) fn remove_names(&self) {
        for name in self.place.names() {
            if FileId::at(name).is_ok_and(|found| found == self.socket) {
                let _gone = fs::remove_file(name);
            }
        }
    }

    /// Whether all names lead to the socket.
    pub(crate) fn look(&self) -> io::Result<SocketNames> {
        for name in self.place.names() {
            let found = FileId::find(name)?;
            if found != Some(self.socket) {
                return Ok(SocketNames::Astray(found));
            }
        }
        Ok(SocketNames::Ours)
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.remove_names();
    }
}

/// Publishes the socket, unless another broker uses the path.
pub fn publish(options: &SocketOptions) -> Result<(UnixListener, Publication), SocketError> {
    let place = SocketPlace::prepare(options)?;
    let lock = lock(&place.socket, &options.path)?;
    let (listener, socket) = bind(&place, options, None)?;
    Ok((listener, Publication { options: options.clone(), place, socket, lock }))
}

/// Binds a temporary path in the socket's directory, sets mode and group, listens, and renames it into place. `own` is a
/// socket of this broker that the new one replaces.
fn bind(
    names: &SocketPlace,
    options: &SocketOptions,
    own: Option<FileId>,
) -> Result<(UnixListener, FileId), SocketError> {
    for name in names.names() {
        if own.is_none() || FileId::find(name).ok().flatten() != own {
            refuse_what_is_not_ours(name)?;
        }
    }
    let path = &names.socket;
    let temporary = temporary_beside(path)?;
    let io = |action, at: &Path| {
        let path = at.to_owned();
        move |source: Errno| SocketError::Io { action, path, source: source.into() }
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(io("open a socket for", path))?;
    // bind creates the file with the descriptor's mode less the umask, so the file is never accessible to others.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600)).map_err(io("restrict", &temporary))?;
    let address = SocketAddrUnix::new(&temporary).map_err(io("address", &temporary))?;
    rustix::net::bind(&socket, &address).map_err(io("create the socket", &temporary))?;
    let placed = place(&socket, &temporary, path, options);
    if placed.is_err() {
        let _gone = fs::remove_file(&temporary);
    }
    let placed = placed?;
    if let Some(link) = &names.link {
        add_name(path, link)?;
    }
    Ok((UnixListener::from(socket), placed))
}

fn temporary_beside(path: &Path) -> Result<PathBuf, SocketError> {
    Ok(split(path)?.0.join(format!(".{:08x}", fastrand::u32(..))))
}

/// Makes `link` a second name of `socket`, in place of a stale socket.
fn add_name(socket: &Path, link: &Path) -> Result<(), SocketError> {
    let temporary = temporary_beside(link)?;
    let placed = fs::hard_link(socket, &temporary).and_then(|()| fs::rename(&temporary, link));
    placed.map_err(|source| {
        let _gone = fs::remove_file(&temporary);
        SocketError::Io { action: "publish", path: link.to_owned(), source }
    })
}

fn place(
    socket: &OwnedFd,
    temporary: &Path,
    path: &Path,
    options: &SocketOptions,
) -> Result<FileId, SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: path.to_owned(), source };
    let at = |action| move |errno: Errno| io(action)(errno.into());
    // Uses a descriptor, not the path: in a shared directory another user could replace the file with a link.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(temporary, flags, Mode::empty()).map_err(at("look at"))?;
    let found = rustix::fs::fstat(&held).map_err(at("look at"))?;
    let own = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != own {
        return Err(SocketError::ForeignFile { path: temporary.to_owned() });
    }
    if let Some(group) = options.group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(&held, "", None, group, AtFlags::EMPTY_PATH).map_err(at("give its group to"))?;
    }
    let mode = Mode::from_raw_mode(options.mode);
    if mode != Mode::from_raw_mode(found.st_mode) {
        // An `O_PATH` descriptor does not support fchmod, but its link in /proc does support chmod.
        let held = format!("/proc/self/fd/{}", held.as_raw_fd());
        rustix::fs::chmod(held, mode).map_err(at("set the mode of"))?;
    }
    rustix::net::listen(socket, BACKLOG).map_err(at("listen on"))?;
    fs::rename(temporary, path).map_err(io("publish"))?;
    Ok(FileId { device: found.st_dev, inode: found.st_ino })
}

/// Takes the lock beside `socket`, which is published as `path`.
fn lock(socket: &Path, path: &Path) -> Result<Lock, SocketError> {
    let (directory, name) = split(socket)?;
    let mut file = OsString::from(".");
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
fn refuse_what_is_not_ours(path: &Path) -> Result<(), SocketError> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_foreign_file_in_the_place_of_our_new_socket_is_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let [victim, temporary, path] = ["victim", ".temporary", "socket"].map(|name| root.path().join(name));
        fs::write(&victim, "precious").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&victim, &temporary).unwrap();
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let options = SocketOptions { path: path.clone(), mode: 0o660, group: None, shared_directory: true };
        let error = place(&socket.unwrap(), &temporary, &path, &options).unwrap_err();
        assert!(matches!(error, SocketError::ForeignFile { .. }), "{error}");
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        assert!(!path.exists());
    }
}
