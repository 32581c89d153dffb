//! Publishes the socket. It never has a wider mode than the configured one, and no other user's file is changed.

mod bind;
mod checks;
mod error;
mod keeper;
mod place;

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::{fs::MetadataExt as _, net::UnixListener},
    path::{Path, PathBuf},
};

use self::{bind::bind, checks::lock, place::SocketPlace};

pub use error::SocketError;
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
enum SocketNames {
    Ours,
    /// One of them leads to another file, or to none.
    Astray(Option<FileId>),
}

/// A published socket. Dropping it removes its names if they still lead to it.
#[derive(Debug)]
pub struct Publication {
    options: SocketOptions,
    place: SocketPlace,
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
        self.place = SocketPlace::prepare(&self.options)?;
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
    fn look(&self) -> io::Result<SocketNames> {
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
