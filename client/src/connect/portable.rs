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
mod tests {
    use std::{
        io::{ErrorKind, Read},
        os::unix::{fs::PermissionsExt, net::UnixListener},
    };

    use super::*;

    #[test]
    fn it_connects_without_blocking_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let mut stream = Directory::open(directory.path()).unwrap().connect(Path::new("socket")).unwrap();
        let _accepted = listener.accept().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn it_knows_the_owner_and_the_mode_of_a_directory_and_refuses_a_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        assert_eq!((opened.owner, opened.mode), (rustix::process::geteuid().as_raw(), 0o750));
        assert!(!opened.is_read_only().unwrap());
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(directory.path().join("below")).unwrap();
        assert!(opened.below(Path::new("below")).unwrap().is_some());
        assert!(opened.below(Path::new("file")).unwrap().is_none());
        assert!(opened.below(Path::new("none")).unwrap().is_none());
        assert_eq!(Directory::open(&file).unwrap_err().kind(), ErrorKind::NotADirectory);
    }
}
