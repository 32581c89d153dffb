//! Makes a socket and gives it its names.

use std::{
    fs,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use super::{
    BACKLOG, FileId, SocketError, SocketOptions,
    checks::{refuse_what_is_not_ours, split},
    place::SocketPlace,
};

/// Binds a temporary path in the socket's directory, sets mode and group, listens, and renames it into place. `own` is a
/// socket of this broker that the new one replaces.
pub(super) fn bind(
    names: &SocketPlace,
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
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

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
