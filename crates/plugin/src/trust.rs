//! Whether other users can replace a plugin's file.

use std::{
    ffi::OsString,
    fs::{self, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::refusal::Refusal;

/// The most symbolic links on the way to a file, as in the kernel.
const MOST_LINKS: usize = 40;
const STICKY: u32 = 0o1000;

/// Why a file at this absolute path is not trusted: another user can write it, or a directory or link on the way to it.
///
/// # Errors
///
/// A part of the path cannot be read.
pub(super) fn distrust(path: &Path) -> io::Result<Option<Refusal>> {
    static OWNERS: LazyLock<Owners> = LazyLock::new(Owners::of_this_process);
    walk(path, &|path, found| {
        let refusal = OWNERS.judge(path, found);
        // Nothing on a mount that is read-only for the broker can be changed through this path.
        refusal.filter(|_| !is_on_read_only_mount(path))
    })
}

/// A directory, link or file on the way to a plugin.
#[derive(Clone, Copy, Debug)]
struct Found {
    owner: u32,
    mode: u32,
    is_link: bool,
    is_directory: bool,
    /// Whether all users can make files beside it.
    is_in_shared: bool,
}

/// Users who may replace plugins.
#[derive(Debug)]
struct Owners {
    own: u32,
    /// What root's files seem to belong to in a user namespace without root.
    unmapped_root: Option<u32>,
}

impl Owners {
    fn of_this_process() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let overflow = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65_534);
        let unmapped_root = (!maps_root(&read("/proc/self/uid_map"))).then_some(overflow);
        Self { own: rustix::process::geteuid().as_raw(), unmapped_root }
    }

    fn are_root(&self, owner: u32) -> bool {
        owner == 0 || self.unmapped_root == Some(owner)
    }

    fn judge(&self, path: &Path, found: Found) -> Option<Refusal> {
        let Found { owner, mode, is_link, is_directory, is_in_shared } = found;
        let is_trusted = owner == self.own || self.are_root(owner);
        if is_link {
            // A link cannot be written, but its owner can replace it where all users can make files.
            let replaceable = is_in_shared && !is_trusted;
            return replaceable.then(|| Refusal::Owner { path: path.to_owned(), owner });
        }
        if !is_trusted {
            return Some(Refusal::Owner { path: path.to_owned(), owner });
        }
        let is_protected = is_directory && mode & STICKY != 0 && self.are_root(owner);
        (mode & 0o022 != 0 && !is_protected)
            .then(|| Refusal::Writable { path: path.to_owned(), mode: mode & 0o7777 })
    }
}

/// Whether a `/proc/PID/uid_map` has root. Without the file there are no user namespaces.
fn maps_root(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().next() == Some("0")) || map.trim().is_empty()
}

fn is_on_read_only_mount(path: &Path) -> bool {
    // The mount of a link is that of its directory.
    let is_read_only =
        |path: &Path| statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if is_link { path.parent().is_some_and(is_read_only) } else { is_read_only(path) }
}

/// Visits each directory and link on the way to `path`, and the file, as the kernel resolves it; ends at the first refusal.
fn walk(path: &Path, judge: &dyn Fn(&Path, Found) -> Option<Refusal>) -> io::Result<Option<Refusal>> {
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    let mut rest: Vec<OsString> = Vec::new();
    push(&mut rest, path);
    if let Some(refusal) = judge(&at, found(&at.symlink_metadata()?, false)) {
        return Ok(Some(refusal));
    }
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let is_in_shared = at.symlink_metadata()?.permissions().mode() & 0o022 != 0;
        let next = at.join(&name);
        let metadata = next.symlink_metadata()?;
        if let Some(refusal) = judge(&next, found(&metadata, is_in_shared)) {
            return Ok(Some(refusal));
        }
        if metadata.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::other("too many symbolic links"));
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            push(&mut rest, &target);
        } else {
            at = next;
        }
    }
    Ok(None)
}

/// Puts the components of `path` on the stack, the first on top.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    rest.extend(names.rev().map(|part| part.as_os_str().to_owned()));
}

fn found(metadata: &Metadata, is_in_shared: bool) -> Found {
    Found {
        owner: metadata.uid(),
        mode: metadata.mode(),
        is_link: metadata.is_symlink(),
        is_directory: metadata.is_dir(),
        is_in_shared,
    }
}

#[cfg(test)]
mod tests;
