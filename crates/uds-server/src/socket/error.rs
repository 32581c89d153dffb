//! Why the socket cannot be published.

use std::{io, path::PathBuf};

use super::LONGEST_PATH;

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
