//! Publishing the socket: no wider mode than the configured one is ever visible, and nobody else's file is touched.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            fs::{
                DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
                PermissionsExt as _,
            },
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
    /// Others could put a socket of their own in our place.
    #[error("the directory {} belongs to uid {owner} and has mode {mode:04o}; it must belong to uid {own} or root and be writable by nobody else (`chmod go-w`), or set `listen.sharedDirectory: true` if its mount is the protection", path.display())]
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
    /// Something that is no socket stands there.
    #[error("{} is not a socket; the broker replaces only a stale socket, so move it away or choose another path with --socket", path.display())]
    ForeignFile {
        /// What stands there.
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

/// A socket under its name. Dropped: the name is removed if it is still ours.
#[derive(Debug)]
pub struct Publication {
    path: PathBuf,
    inode: u64,
    /// Held as long as we live: it decides between brokers that start at once.
    _lock: File,
}

impl Drop for Publication {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if ours {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Binds a temporary name in the socket's directory, gives it its mode and group, listens, and renames it into place.
pub fn publish(options: &SocketOptions) -> Result<(UnixListener, Publication), SocketError> {
    let path = &options.path;
    let (directory, name) = split(path)?;
    prepare_directory(directory, options)?;
    let lock = lock(directory, name, path)?;
    refuse_what_is_not_ours(path)?;

    let temporary = directory.join(format!(".{:08x}", fastrand::u32(..)));
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
    let inode = placed?;
    Ok((UnixListener::from(socket), Publication { path: path.clone(), inode, _lock: lock }))
}

fn place(socket: &OwnedFd, temporary: &Path, options: &SocketOptions) -> Result<u64, SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: options.path.clone(), source };
    let at = |action| move |errno: Errno| io(action)(errno.into());
    // Held, not named: in a shared directory somebody could put a link of that name there, and it would be followed.
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
    Ok(found.st_ino)
}

fn split(path: &Path) -> Result<(&Path, &std::ffi::OsStr), SocketError> {
    let length = path.as_os_str().len();
    match (path.parent(), path.file_name()) {
        _ if length > LONGEST_PATH => Err(SocketError::PathTooLong { path: path.to_owned(), length }),
        (Some(directory), Some(name)) if path.is_absolute() => Ok((directory, name)),
        _ => Err(SocketError::PathInvalid { path: path.to_owned() }),
    }
}

/// Makes the directory, or checks the one that is there.
fn prepare_directory(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let io = |action| move |source| SocketError::Io { action, path: directory.to_owned(), source };
    let mode = if options.mode & 0o070 == 0 { 0o700 } else { 0o750 };
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(io("create the directory"))?;
        if let Some(group) = options.group {
            let group = Some(Gid::from_raw(group));
            rustix::fs::chown(directory, None, group).map_err(io_error).map_err(io("give its group to"))?;
        }
        // Whatever the umask is: a group that may connect has to get in.
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).map_err(io("set the mode of"))?;
    }
    let found = fs::metadata(directory).map_err(io("look at"))?;
    let own = rustix::process::geteuid().as_raw();
    let trusted = [own, 0].contains(&found.uid()) && found.mode() & 0o022 == 0;
    if trusted || options.shared_directory {
        return Ok(());
    }
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    Err(SocketError::Directory { path: directory.to_owned(), owner, mode, own })
}

fn lock(directory: &Path, name: &std::ffi::OsStr, path: &Path) -> Result<File, SocketError> {
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
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(SocketError::AlreadyRunning { path: path.to_owned() }),
        Err(error) => Err(io(error.into())),
    }
}

/// A stale socket is nobody's; everything else at the path is somebody's.
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

/// Without blocking: a full backlog answers EAGAIN.
fn connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

fn io_error(error: Errno) -> io::Error {
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_put_in_the_place_of_our_new_socket_is_not_touched() {
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
