//! Where a socket is, and whether only its own user and root can replace it there.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use credbroker_client::paths::{OWN_SOCKET, exposed, own_folder};
use rustix::fs::OFlags;

/// Maximum length of a socket path on Linux in bytes, without the terminating NUL.
const LONGEST_PATH: usize = 107;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const SET_GROUP: u32 = 0o2000;

/// Why the socket cannot be published.
#[derive(Debug, thiserror::Error)]
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

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }

    /// The file at `path`; does not follow a link.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|found| Self::of(&found))
    }

    /// Like [`at`](Self::at), but `None` if the file does not exist.
    pub(crate) fn find(path: &Path) -> io::Result<Option<Self>> {
        match Self::at(path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The names of a socket.
#[derive(Clone, Debug)]
pub(crate) struct SocketPlace {
    /// Where the socket is.
    pub(crate) socket: PathBuf,
    /// The configured path, if it is directly in a shared directory: a second name, for clients that do not look for the
    /// broker's own folder.
    pub(crate) link: Option<PathBuf>,
}

impl SocketPlace {
    /// Creates the directory of the socket, or checks the existing one.
    pub(crate) fn prepare(options: &SocketOptions) -> Result<Self, SocketError> {
        let directory = split(&options.path)?.0;
        let place = Self { socket: options.path.clone(), link: None };
        match find(directory)? {
            None => create(directory, options)?,
            Some(found) if is_safe(&found) => {
                if options.shared_directory && is_shared(directory) && found.uid() == own() {
                    restore(directory, options)?;
                }
            }
            Some(_) if options.shared_directory => return Self::within_own_folder(options),
            Some(found) => return Err(unsafe_directory(directory, &found)),
        }
        place.check(options).map(|()| place)
    }

    fn within_own_folder(options: &SocketOptions) -> Result<Self, SocketError> {
        let folder = own_folder(&options.path);
        let place = Self { socket: folder.join(OWN_SOCKET), link: Some(options.path.clone()) };
        split(&place.socket)?;
        match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&folder, options)?,
            Err(error) => return Err(io_error("look at", &folder)(error)),
            Ok(found) if found.is_dir() && found.uid() == own() => restore(&folder, options)?,
            Ok(found) => return Err(SocketError::Folder { path: folder, owner: found.uid(), own: own() }),
        }
        place.check(options).map(|()| place)
    }

    /// Every name that must lead to the socket.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.socket), self.link.as_ref()].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Checks that no user besides the broker's own and root can replace the socket, its directory, or a directory above
    /// it. One that is shared on purpose does not count.
    pub(crate) fn check(&self, options: &SocketOptions) -> Result<(), SocketError> {
        let directory = split(&self.socket)?.0;
        let look = io_error("look at", directory);
        let found = fs::metadata(directory).map_err(look)?;
        if !is_safe(&found) {
            return Err(unsafe_directory(directory, &found));
        }
        let shared = directory.parent().filter(|_| options.shared_directory).map(fs::metadata);
        let shared =
            shared.transpose().map_err(io_error("look at", directory))?.map(|found| FileId::of(&found));
        let is_exempt = |_: &Path, found: &Metadata| shared == Some(FileId::of(found));
        match exposed(directory, &[0, own()], is_exempt).map_err(io_error("look at", directory))? {
            None => Ok(()),
            Some(by) => Err(SocketError::Exposed {
                directory: directory.to_owned(),
                by: by.path,
                owner: by.owner,
                mode: by.mode,
                own: own(),
            }),
        }
    }
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Only the broker's user and root can change what is in it.
fn is_safe(directory: &Metadata) -> bool {
    [own(), 0].contains(&directory.uid()) && directory.mode() & WRITABLE_BY_OTHERS == 0
}

/// Whether `directory` is in one that others can change.
fn is_shared(directory: &Path) -> bool {
    directory.parent().and_then(|parent| fs::metadata(parent).ok()).is_some_and(|parent| !is_safe(&parent))
}

fn find(directory: &Path) -> Result<Option<Metadata>, SocketError> {
    match fs::metadata(directory) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("look at", directory)(error)),
    }
}

fn create(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.map_err(io_error("create the directory", directory))?;
    restore(directory, options)
}

/// Sets group and mode of a directory that the broker made. In a shared directory another user could have put a link in
/// its place, so this does not use its path.
fn restore(directory: &Path, options: &SocketOptions) -> Result<(), SocketError> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(directory);
    let held: File = opened.map_err(io_error("open", directory))?;
    let found = held.metadata().map_err(io_error("look at", directory))?;
    if found.uid() != own() {
        return Err(SocketError::Folder { path: directory.to_owned(), owner: found.uid(), own: own() });
    }
    if options.group.is_some_and(|group| group != found.gid()) {
        fchown(&held, None, options.group).map_err(io_error("give its group to", directory))?;
    }
    // A shared directory may hand its group down, as `fsGroup` of Kubernetes does.
    let mode = directory_mode(options) | (found.mode() & SET_GROUP);
    // Set explicitly, because the umask could keep out a group that may connect.
    if found.mode() & 0o7777 != mode {
        held.set_permissions(Permissions::from_mode(mode)).map_err(io_error("set the mode of", directory))?;
    }
    Ok(())
}

/// Who may connect must be able to look up the socket.
fn directory_mode(options: &SocketOptions) -> u32 {
    match (options.shared_directory, options.mode & 0o070 != 0, options.mode & 0o007 != 0) {
        (true, _, false) if options.group.is_some() => 0o710,
        (true, _, _) => 0o711,
        (false, _, true) => 0o755,
        (false, true, false) => 0o750,
        (false, false, false) => 0o700,
    }
}

fn unsafe_directory(directory: &Path, found: &Metadata) -> SocketError {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    SocketError::Directory { path: directory.to_owned(), owner, mode, own: own() }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError + use<> {
    let path = path.to_owned();
    move |source| SocketError::Io { action, path, source }
}

pub(crate) fn split(path: &Path) -> Result<(&Path, &std::ffi::OsStr), SocketError> {
    let length = path.as_os_str().len();
    match (path.parent(), path.file_name()) {
        _ if length > LONGEST_PATH => Err(SocketError::PathTooLong { path: path.to_owned(), length }),
        (Some(directory), Some(name)) if path.is_absolute() => Ok((directory, name)),
        _ => Err(SocketError::PathInvalid { path: path.to_owned() }),
    }
}
