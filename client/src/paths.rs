//! Who can change where a path leads: every directory on the way, and every symbolic link.
//!
//! The clients check the way to a socket with it, and the broker the way to its sockets and to the files that it follows.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    io::Errno,
};

/// Name of the socket in the broker's own directory.
pub const OWN_SOCKET: &str = "socket";
/// As many links as Linux follows.
const MOST_LINKS: usize = 40;
pub(crate) const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A directory or a link with which a user who is not trusted can change where a path leads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exposed {
    /// The directory or the link.
    pub path: PathBuf,
    /// Uid of its owner.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// The broker's own directory for the socket `name`, beside that name: others can write to the directory of both.
pub fn own_folder(name: &Path) -> PathBuf {
    let mut folder = name.as_os_str().to_owned();
    folder.push(".d");
    folder.into()
}

/// The lock that a broker holds next to its socket from before it listens until it ends, and the one that a command holds
/// while it restarts the broker.
pub fn locks(socket: &Path) -> [PathBuf; 2] {
    let name = socket.file_name().unwrap_or_default();
    let beside =
        |end: &str| socket.with_file_name([OsStr::new("."), name, OsStr::new(end)].join(OsStr::new("")));
    [".lock", ".starting"].map(beside)
}

/// Finds the first directory or link with which a user who is not one of `trusted` can change where `path` leads.
///
/// A directory is safe if it belongs to a trusted user and others cannot write to it. A sticky one is safe too, because
/// others cannot rename what belongs to a trusted user; what the path leads to must be checked for itself. Owner and mode
/// do not count on a mount that is read-only for this process, nor where `is_exempt` says so.
///
/// # Errors
///
/// The way cannot be looked at, or does not exist.
pub fn exposed(
    path: &Path,
    trusted: &[u32],
    is_exempt: impl Fn(&Path, &Metadata) -> bool,
) -> io::Result<Option<Exposed>> {
    first_on_the_way(path, |at, found| {
        let is_safe = !is_writable(found) || found.mode() & STICKY != 0;
        (trusted.contains(&found.uid()) && is_safe) || (!found.is_symlink() && is_exempt(at, found))
    })
}

/// Finds the first directory or link on the way to `path` that does not belong to one of `trusted`, or in which others can
/// make names: they may have made what `path` leads to. So a sticky directory counts too. A mount that is read-only for
/// this process does not count.
///
/// # Errors
///
/// The way cannot be looked at, or does not exist.
pub fn shared(path: &Path, trusted: &[u32]) -> io::Result<Option<Exposed>> {
    first_on_the_way(path, |_, found| trusted.contains(&found.uid()) && !is_writable(found))
}

/// The mode of a link means nothing.
fn is_writable(found: &Metadata) -> bool {
    !found.is_symlink() && found.mode() & WRITABLE_BY_OTHERS != 0
}

/// The first directory or link on the way to `path`, or what it leads to, that is not safe and not on a read-only mount.
///
/// # Errors
///
/// The way cannot be looked at, or does not exist.
pub fn first_on_the_way(
    path: &Path,
    is_safe: impl Fn(&Path, &Metadata) -> bool,
) -> io::Result<Option<Exposed>> {
    let at = |path: &Path, found: &Metadata| {
        Some(Exposed { path: path.to_owned(), owner: found.uid(), mode: found.mode() & 0o7777 })
    };
    let mut here = PathBuf::from("/");
    let mut names = names(&std::path::absolute(path)?);
    let mut links = 0;
    loop {
        let found = here.symlink_metadata()?;
        if !is_safe(&here, &found) && !is_read_only(&here)? {
            return Ok(at(&here, &found));
        }
        let Some(name) = names.pop() else { return Ok(None) };
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(name);
        let found = next.symlink_metadata()?;
        if !found.is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        if !is_safe(&next, &found) && !is_read_only(&here)? {
            return Ok(at(&next, &found));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        names.extend(self::names(&target));
    }
}

/// The names of `path`, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::Prefix(_) | Component::RootDir => None,
    });
    names.collect()
}

fn is_read_only(path: &Path) -> io::Result<bool> {
    Ok(statvfs(path)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

#[cfg(test)]
mod tests;
