//! Publishing the socket: no wider mode than the configured one is ever visible, and no other user's file is touched.

mod checks;
mod keeper;

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

use self::checks::{lock, prepare_directory, refuse_what_is_not_ours, split};

pub use keeper::{Keeper, SocketOrigin};

/// Bytes of a socket's path on Linux, less the terminating zero.
const LONGEST_PATH: usize = 107;
/// Connections that may wait to be accepted: 200 shims started at once must all get in.
const BACKLOG: i32 = 4096;

/// Where the socket goes and who may reach it.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Absolute.
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// Group of the socket, by number.
    pub group: Option<u32>,
    /// Accept a directory that others can write to: possession of the mount is the capability.
    pub shared_directory: bool,
}

/// Why the socket cannot be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// A broker answers there.
    #[error("a broker is already running on {}; stop it first, or choose another socket with --socket", path.display())]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
    },
    /// Others could put their own socket in our place.
    #[error("the directory {} belongs to uid {owner} and has mode {mode:04o}; it must belong to uid {own} or root and be writable by no other user (`chmod go-w`), or set `listen.sharedDirectory: true` if its mount is the protection", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// Our uid.
        own: u32,
    },
    /// Something else than a socket is there.
    #[error("{} is not a socket; the broker replaces only a stale socket, so move it away or choose another path with --socket", path.display())]
    ForeignFile {
        /// What is there.
        path: PathBuf,
    },
    /// A call failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel takes no such path.
    #[error("the socket path {} has {length} bytes; the kernel allows {LONGEST_PATH}, so choose a shorter one with --socket", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// It has no directory or no name.
    #[error("the socket path {} must be absolute and name a file", path.display())]
    PathInvalid {
        /// The path.
        path: PathBuf,
    },
}

/// One file under any name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }

    /// What `path` names, which is not followed if it is a link.
    fn at(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|found| Self::of(&found))
    }

    /// As [`at`](Self::at); `None`: nothing has that name.
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

/// The lock beside a socket. Held as long as the broker lives: it decides between brokers that start at once.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Whether its name still leads to it: otherwise another broker may hold a lock of that name.
    fn is_in_place(&self) -> io::Result<bool> {
        let held = FileId::of(&self.file.metadata()?);
        Ok(FileId::find(&self.path)? == Some(held))
    }
}

/// A socket under its name. Dropped: the name is removed if it is still ours.
#[derive(Debug)]
pub struct Publication {
    options: SocketOptions,
    socket: FileId,
    lock: Lock,
}

impl Publication {
    /// Publishes a new socket under the name, which is no longer ours.
    ///
    /// # Errors
    ///
    /// The directory became unsafe, or another process uses the name: nothing was touched.
    fn publish_again(&mut self) -> Result<UnixListener, SocketError> {
        prepare_directory(split(&self.options.path)?.0, &self.options)?;
        let (listener, socket) = bind(&self.options)?;
        self.socket = socket;
        Ok(listener)
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        let path = &self.options.path;
        if FileId::at(path).is_ok_and(|found| found == self.socket) {
            let _gone = fs::remove_file(path);
        }
    }
}

/// Publishes a socket that no other broker uses.
pub fn publish(options: &SocketOptions) -> Result<(UnixListener, Publication), SocketError> {
    let (directory, name) = split(&options.path)?;
    prepare_directory(directory, options)?;
    let lock = lock(directory, name, &options.path)?;
    let (listener, socket) = bind(options)?;
    Ok((listener, Publication { options: options.clone(), socket, lock }))
}

/// Binds a temporary name in the socket's directory, gives it its mode and group, listens, and renames it into place.
fn bind(options: &SocketOptions) -> Result<(UnixListener, FileId), SocketError> {
    let path = &options.path;
    refuse_what_is_not_ours(path)?;
    let temporary = split(path)?.0.join(format!(".{:08x}", fastrand::u32(..)));
    let io = |action, at: &Path| {
        let path = at.to_owned();
        move |source: Errno| SocketError::Io { action, path, source: source.into() }
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(io("open a socket for", path))?;
    // The mode that bind gives the name is the descriptor's less the umask, so it is narrow from its first moment.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600)).map_err(io("restrict", &temporary))?;
    let address = SocketAddrUnix::new(&temporary).map_err(io("address", &temporary))?;
    rustix::net::bind(&socket, &address).map_err(io("create the socket", &temporary))?;
    let placed = place(&socket, &temporary, options);
    if placed.is_err() {
        let _gone = fs::remove_file(&temporary);
    }
    Ok((UnixListener::from(socket), placed?))
}

fn place(socket: &OwnedFd, temporary: &Path, options: &SocketOptions) -> Result<FileId, SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: options.path.clone(), source };
    let at = |action| move |errno: Errno| io(action)(errno.into());
    // Held, not named: in a shared directory another user could put a link of that name there, and it would be followed.
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
        // A descriptor that only holds on to a file cannot change it, but leads to it.
        let held = format!("/proc/self/fd/{}", held.as_raw_fd());
        rustix::fs::chmod(held, mode).map_err(at("set the mode of"))?;
    }
    rustix::net::listen(socket, BACKLOG).map_err(at("listen on"))?;
    fs::rename(temporary, &options.path).map_err(io("publish"))?;
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
        let error = place(&socket.unwrap(), &temporary, &options).unwrap_err();
        assert!(matches!(error, SocketError::ForeignFile { .. }), "{error}");
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        assert!(!path.exists());
    }
}
