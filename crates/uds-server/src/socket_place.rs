//! Where a socket is, and whether only its own user and root can replace it there.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use credbroker_client::{
    paths::{Exposed, OWN_SOCKET, exposed, own_folder},
    safety::has_private_group,
};
use rustix::fs::OFlags;

/// Maximum length of a socket path on Linux in bytes, without the terminating NUL.
const LONGEST_PATH: usize = 107;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const SET_GROUP: u32 = 0o2000;

/// Why the socket cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A broker listens on the path.
    #[error("a broker is already running on {}; stop it with `credbroker stop`, or choose another socket with --socket", .0.display())]
    AlreadyRunning(PathBuf),
    /// Other users could replace the socket in this directory.
    #[error("the directory {} belongs to uid {} and has mode {:04o}; it must belong to uid {} or root and be writable by no other user (`chmod go-w`), or set `listen.sharedDirectory: true` if its mount is the protection", .0.path.display(), .0.owner, .0.mode, own())]
    Directory(Exposed),
    /// Other users could replace the socket's directory, because of another directory or a link on the way to it.
    #[error("other users can replace the directory {}, because {} belongs to uid {} and has mode {:04o}; it must belong to uid {} or root and be writable by no other user (`chmod go-w`), or set `listen.sharedDirectory: true` if its mount is the protection", .0.display(), .1.path.display(), .1.owner, .1.mode, own())]
    Exposed(PathBuf, Exposed),
    /// Something else, of the user with this uid, is in the place of the broker's own folder.
    #[error("{} must be a directory of the broker's user, uid {}, but belongs to uid {_1} or is not a directory; remove it, or choose another socket", .0.display(), own())]
    Folder(PathBuf, u32),
    /// The path names a file that is not a socket.
    #[error("{} is not a socket; the broker replaces only a stale socket, so move it away or choose another path with --socket", .0.display())]
    ForeignFile(PathBuf),
    /// A system call that did this to the file failed.
    #[error("cannot {_0} {}", .1.display())]
    Io(&'static str, PathBuf, #[source] io::Error),
    /// The path is longer than the kernel allows.
    #[error("the socket path {} has {} bytes; the kernel allows {LONGEST_PATH}, so choose a shorter one with --socket", .0.display(), .0.as_os_str().len())]
    PathTooLong(PathBuf),
    /// The path is not absolute, or does not name a file.
    #[error("the socket path {} must be absolute and name a file", .0.display())]
    PathInvalid(PathBuf),
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

/// Identifies a file independently of its path, by its device and its number there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }

    /// The file at `path`; does not follow a link. `None`: there is none.
    pub(crate) fn find(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
            found => Ok(unless_absent(found)?.map(|found| Self::of(&found))),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SocketPlace {
    /// The configured path is a second name, for clients that do not look for the broker's own folder, if this is another.
    pub(crate) socket: PathBuf,
    pub(crate) options: SocketOptions,
}

impl SocketPlace {
    /// Creates the directory of the socket, or checks the existing one.
    pub(crate) fn prepare(options: &SocketOptions) -> Result<Self, SocketError> {
        let directory = checked_parent(&options.path)?;
        let mut place = Self { socket: options.path.clone(), options: options.clone() };
        match unless_absent(fs::metadata(directory)).map_err(io_error("look at", directory))? {
            None => place.create(directory)?,
            Some(found) if is_safe(&found) => {
                if options.shared_directory && is_shared(directory) && found.uid() == own() {
                    place.restore(directory)?;
                }
            }
            Some(_) if options.shared_directory => {
                let folder = own_folder(&options.path);
                place.socket = folder.join(OWN_SOCKET);
                checked_parent(&place.socket)?;
                let found = fs::symlink_metadata(&folder);
                match unless_absent(found).map_err(io_error("look at", &folder))? {
                    None => place.create(&folder)?,
                    Some(found) if found.is_dir() && found.uid() == own() => place.restore(&folder)?,
                    Some(found) => return Err(SocketError::Folder(folder, found.uid())),
                }
            }
            Some(found) => return Err(SocketError::Directory(writable(directory, &found))),
        }
        place.check().map(|()| place)
    }

    /// Every name that must lead to the socket.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Path> {
        let second = Some(&self.options.path).filter(|path| **path != self.socket);
        [Some(&self.socket), second].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Checks that no user besides the broker's own and root can replace the socket, its directory, or a directory above
    /// it. One that is shared on purpose does not count.
    pub(crate) fn check(&self) -> Result<(), SocketError> {
        let directory = checked_parent(&self.socket)?;
        let found = fs::metadata(directory).map_err(io_error("look at", directory))?;
        if !is_safe(&found) {
            return Err(SocketError::Directory(writable(directory, &found)));
        }
        let shared = directory.parent().filter(|_| self.options.shared_directory).map(fs::metadata);
        let shared = shared.transpose().map_err(io_error("look at", directory))?;
        let shared = shared.as_ref().map(FileId::of);
        let is_exempt = |at: &Path, found: &Metadata| {
            shared == Some(FileId::of(found))
                || ([0, own()].contains(&found.uid()) && has_private_group(at, found))
        };
        match exposed(directory, &[0, own()], is_exempt).map_err(io_error("look at", directory))? {
            None => Ok(()),
            Some(by) => Err(SocketError::Exposed(directory.to_owned(), by)),
        }
    }

    fn create(&self, directory: &Path) -> Result<(), SocketError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(io_error("create the directory", directory))?;
        self.restore(directory)
    }

    /// Sets group and mode of a directory that the broker made. In a shared directory another user could have put a link
    /// in its place, so this does not use its path.
    fn restore(&self, directory: &Path) -> Result<(), SocketError> {
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
        let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(directory);
        let held: File = opened.map_err(io_error("open", directory))?;
        let found = held.metadata().map_err(io_error("look at", directory))?;
        if found.uid() != own() {
            return Err(SocketError::Folder(directory.to_owned(), found.uid()));
        }
        let group = self.options.group.filter(|group| *group != found.gid());
        if group.is_some() {
            fchown(&held, None, group).map_err(io_error("give its group to", directory))?;
        }
        // A shared directory may hand its group down, as `fsGroup` of Kubernetes does.
        let mode = directory_mode(&self.options) | (found.mode() & SET_GROUP);
        // Set explicitly, because the umask could keep out a group that may connect.
        if found.mode() & 0o7777 != mode {
            let set = held.set_permissions(Permissions::from_mode(mode));
            set.map_err(io_error("set the mode of", directory))?;
        }
        Ok(())
    }
}

pub(crate) fn own() -> u32 {
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

fn writable(directory: &Path, found: &Metadata) -> Exposed {
    Exposed { path: directory.to_owned(), owner: found.uid(), mode: found.mode() & 0o7777 }
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

/// `None`: the file does not exist.
pub(crate) fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

pub(crate) fn io_error<E: Into<io::Error>>(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> SocketError {
    move |error| SocketError::Io(action, path.to_owned(), error.into())
}

/// The directory of `path`, which can be the path of a socket.
fn checked_parent(path: &Path) -> Result<&Path, SocketError> {
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(SocketError::PathTooLong(path.to_owned()));
    }
    let directory = path.parent().filter(|_| path.is_absolute() && path.file_name().is_some());
    directory.ok_or_else(|| SocketError::PathInvalid(path.to_owned()))
}
