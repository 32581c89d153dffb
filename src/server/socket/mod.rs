//! Publishes the socket. It never has a wider mode than the configured one, and no other user's file is changed.

mod checks;
mod keeper;
mod place;

use std::{
    fs::{self, File, Metadata},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixListener},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use self::{
    checks::{lock, refuse_what_is_not_ours, split},
    place::Place,
};

pub use keeper::{Keeper, SocketOrigin};

/// Maximum length of a socket path on Linux in bytes, without the terminating NUL.
const LONGEST_PATH: usize = 107;
/// Connections that may wait to be accepted. It must hold 200 shims that start at once.
pub(super) const BACKLOG: i32 = 4096;

/// Path and permissions of the socket.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Absolute path of the socket.
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// Group of the socket, by number.
    pub group: Option<u32>,
    /// Others can write to the directory, or to the one above it. The socket is then in the broker's own folder.
    pub shared_directory: bool,
}

/// Why the socket cannot be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// A broker listens on the path.
    #[error("a broker is already running on {}; stop it first, or choose another socket with --socket", path.display())]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
    },
    /// Other users could replace the socket in this directory.
    #[error("the directory {} belongs to uid {owner} and has mode {mode:04o}; it must belong to uid {own} or root and be writable by no other user (`chmod go-w`), or set `listen.sharedDirectory: true` if its mount is the protection", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Uid of its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// Uid of the broker.
        own: u32,
    },
    /// Other users could replace the socket's directory.
    #[error("other users can replace the directory {}, because {} belongs to uid {owner} and has mode {mode:04o}; it must belong to uid {own} or root and be writable by no other user (`chmod go-w`), or set `listen.sharedDirectory: true` if its mount is the protection", directory.display(), by.display())]
    Exposed {
        /// The socket's directory.
        directory: PathBuf,
        /// A directory or link on the way to it, which makes that possible.
        by: PathBuf,
        /// Uid of its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// Uid of the broker.
        own: u32,
    },
    /// Something else is in the place of the broker's own folder.
    #[error("{} must be a directory of the broker's user, uid {own}, but belongs to uid {owner} or is not a directory; remove it, or choose another socket", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Uid of its owner.
        owner: u32,
        /// Uid of the broker.
        own: u32,
    },
    /// The path names a file that is not a socket.
    #[error("{} is not a socket; the broker replaces only a stale socket, so move it away or choose another path with --socket", path.display())]
    ForeignFile {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file that it applies to.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The path is longer than the kernel allows.
    #[error("the socket path {} has {length} bytes; the kernel allows {LONGEST_PATH}, so choose a shorter one with --socket", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Length of the path in bytes.
        length: usize,
    },
    /// The path is not absolute, or does not name a file.
    #[error("the socket path {} must be absolute and name a file", path.display())]
    PathInvalid {
        /// The path.
        path: PathBuf,
    },
}

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }

    /// The file at `path`; does not follow a link.
    fn at(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|found| Self::of(&found))
    }

    /// Like [`at`](Self::at), but `None` if the file does not exist.
    fn find(path: &Path) -> io::Result<Option<Self>> {
        match Self::at(path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The lock file beside the socket, held until the broker ends. Of brokers that start at once, one gets it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Whether the path still names the held lock. Otherwise another broker may hold a new lock at that path.
    fn is_in_place(&self) -> io::Result<bool> {
        let held = FileId::of(&self.file.metadata()?);
        Ok(FileId::find(&self.path)? == Some(held))
    }
}

/// Where the names of a socket lead.
#[derive(Debug)]
enum Names {
    Ours,
    /// One of them leads to another file, or to none.
    Astray(Option<FileId>),
}

/// A published socket. Dropping it removes its names if they still lead to it.
#[derive(Debug)]
pub struct Publication {
    options: SocketOptions,
    place: Place,
    socket: FileId,
    lock: Lock,
}

impl Publication {
    /// Publishes a new socket, because a name no longer leads to the old one.
    ///
    /// # Errors
    ///
    /// The directory became unsafe, or another process uses the path. Nothing was changed.
    fn publish_again(&mut self) -> Result<UnixListener, SocketError> {
        self.place = Place::prepare(&self.options)?;
        let (listener, socket) = bind(&self.place, &self.options, Some(self.socket))?;
        self.socket = socket;
        Ok(listener)
    }

    /// Removes the names that lead to the socket.
    fn remove_names(&self) {
        for name in self.place.names() {
            if FileId::at(name).is_ok_and(|found| found == self.socket) {
                let _gone = fs::remove_file(name);
            }
        }
    }

    /// Whether all names lead to the socket.
    fn look(&self) -> io::Result<Names> {
        for name in self.place.names() {
            let found = FileId::find(name)?;
            if found != Some(self.socket) {
                return Ok(Names::Astray(found));
            }
        }
        Ok(Names::Ours)
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.remove_names();
    }
}

/// Publishes the socket, unless another broker uses the path.
pub fn publish(options: &SocketOptions) -> Result<(UnixListener, Publication), SocketError> {
    let place = Place::prepare(options)?;
    let lock = lock(&place.socket, &options.path)?;
    let (listener, socket) = bind(&place, options, None)?;
    Ok((listener, Publication { options: options.clone(), place, socket, lock }))
}

/// Binds a temporary path in the socket's directory, sets mode and group, listens, and renames it into place. `own` is a
/// socket of this broker that the new one replaces.
fn bind(
    names: &Place,
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
