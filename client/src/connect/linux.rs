//! Sockets and their directories on Linux.

use std::{
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::MetadataExt, net::UnixStream},
    },
    path::{Path, PathBuf},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::{
    fs::{Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, open, openat},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

const FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open directory. The descriptor refers to the directory that was checked, even if its path later leads elsewhere.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
    pub(super) owner: u32,
    pub(super) mode: u32,
}

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::of(open(path, FLAGS, Mode::empty())?, path.to_owned())
    }

    /// The directory `name` in this one; `None` if there is none. Does not follow a link.
    pub(super) fn below(&self, name: &Path) -> io::Result<Option<Self>> {
        match openat(&self.descriptor, name, FLAGS.union(OFlags::NOFOLLOW), Mode::empty()) {
            Ok(descriptor) => Self::of(descriptor, self.path.join(name)).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn of(descriptor: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let stat = fstat(&descriptor)?;
        Ok(Self { descriptor, path, owner: stat.st_uid, mode: stat.st_mode & 0o7777 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this directory.
    pub(super) fn is_still_there(&self) -> io::Result<bool> {
        let (held, found) = (fstat(&self.descriptor)?, self.path.metadata()?);
        Ok((held.st_dev, held.st_ino) == (found.dev(), found.ino()))
    }

    pub(super) fn is_read_only(&self) -> io::Result<bool> {
        Ok(fstatvfs(&self.descriptor)?.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Connects to the socket `name` in this directory, without blocking: a listener whose queue is full is
    /// [`io::ErrorKind::WouldBlock`].
    ///
    /// The path goes through the descriptor, so that the directory cannot be replaced after the check. This also lifts
    /// the limit of 107 bytes on the path of a socket.
    pub(super) fn connect(&self, name: &Path) -> io::Result<UnixStream> {
        let descriptors = Path::new("/proc/self/fd");
        let held = descriptors.join(self.descriptor.as_raw_fd().to_string());
        let stream = match connect_to(&held.join(name)) {
            // A chroot without /proc has only the path.
            Err(Errno::NOENT) if !descriptors.exists() => connect_to(&self.path.join(name)),
            outcome => outcome,
        };
        Ok(stream?)
    }
}

/// The user that the process that listens runs as. The process may be in another PID namespace, where its number is 0:
/// rustix takes that for an error.
pub(super) fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, PeerCredentials)?.uid())
}

/// Whether this user namespace maps every uid to itself. Otherwise the kernel shows each user that it does not map as
/// uid 65534.
pub(super) fn maps_every_user() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn connect_to(path: &Path) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}
