//! Sockets and their directories on other systems than Linux.

use std::{
    io,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// A directory by its path. These systems cannot connect through a descriptor, so someone who may rename the directory's
/// parents could replace it between the check and the connection; the check of the server's user still holds.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    pub(super) owner: u32,
    pub(super) mode: u32,
}

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let metadata = path.metadata()?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path: path.to_owned(), owner: metadata.uid(), mode: metadata.mode() & 0o7777 })
    }

    /// The directory `name` in this one; `None` if there is none. Does not follow a link.
    pub(super) fn below(&self, name: &Path) -> io::Result<Option<Self>> {
        let path = self.path.join(name);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => Self::open(&path).map(Some),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this directory, as far as this system can say.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_still_there(&self) -> io::Result<bool> {
        let found = self.path.metadata()?;
        Ok((found.uid(), found.mode() & 0o7777) == (self.owner, self.mode))
    }

    pub(super) fn is_read_only(&self) -> io::Result<bool> {
        Ok(statvfs(&self.path)?.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Connects to the socket `name` in this directory. The stream is non-blocking.
    pub(super) fn connect(&self, name: &Path) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.path.join(name))?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// The user that the process that listens runs as.
#[cfg(not(target_os = "linux"))]
pub(super) fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    let (user, _) = nix::unistd::getpeereid(stream)?;
    Ok(user.as_raw())
}

/// These systems have no user namespaces.
#[cfg(not(target_os = "linux"))]
pub(super) fn maps_every_user() -> bool {
    true
}

#[cfg(test)]
mod tests;
