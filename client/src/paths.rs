//! Who can change where a path leads: every directory on the way, and every symbolic link.
//!
//! The clients check the way to a socket with it, and the broker the way to its sockets and its configuration.

use std::{
    ffi::OsString,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    io::Errno,
};

/// Name of the socket in the broker's own folder.
pub const OWN_SOCKET: &str = "socket";
/// As many links as Linux follows.
const MOST_LINKS: usize = 40;
const WRITABLE_BY_OTHERS: u32 = 0o022;
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

/// The broker's own folder for the socket `name`, beside that name: others can write to the directory of both.
pub fn own_folder(name: &Path) -> PathBuf {
    let mut folder = name.as_os_str().to_owned();
    folder.push(".d");
    folder.into()
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
    is_exempt: impl Fn(&Metadata) -> bool,
) -> io::Result<Option<Exposed>> {
    let at = |path: &Path, found: &Metadata| {
        Some(Exposed { path: path.to_owned(), owner: found.uid(), mode: found.mode() & 0o7777 })
    };
    let mut here = PathBuf::from("/");
    let mut names = names(&std::path::absolute(path)?);
    let mut links = 0;
    loop {
        let found = here.symlink_metadata()?;
        let is_safe = trusted.contains(&found.uid())
            && (found.mode() & WRITABLE_BY_OTHERS == 0 || found.mode() & STICKY != 0);
        if !is_safe && !is_exempt(&found) && !is_read_only(&here)? {
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
        if !trusted.contains(&found.uid()) && !is_read_only(&here)? {
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
mod tests {
    use std::{
        fs::{DirBuilder, set_permissions},
        os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    };

    use rustix::process::geteuid;
    use tempfile::TempDir;

    use super::*;

    /// A directory whose own path has no links.
    fn root() -> (TempDir, PathBuf) {
        let directory = credbroker_test_support::private_directory();
        let path = directory.path().canonicalize().unwrap();
        (directory, path)
    }

    fn make(path: &Path, mode: u32) {
        DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
        set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn found(path: &Path) -> Option<(PathBuf, u32)> {
        let exposed = exposed(path, &[0, geteuid().as_raw()], |_| false).unwrap();
        exposed.map(|exposed| (exposed.path, exposed.mode))
    }

    #[test]
    fn a_directory_that_others_can_write_to_exposes_all_below_it_unless_it_is_sticky() {
        let (_directory, root) = root();
        let leaf = root.join("a/b/c");
        make(&leaf, 0o755);
        assert_eq!(found(&leaf), None);
        for (mode, is_exposed) in
            [(0o777, true), (0o775, true), (0o772, true), (0o755, false), (0o1777, false), (0o3777, false)]
        {
            make(&root.join("a"), mode);
            assert_eq!(found(&leaf), is_exposed.then(|| (root.join("a"), mode)), "{mode:o}");
        }
        make(&root.join("a"), 0o777);
        let exempt = root.join("a").metadata().unwrap().ino();
        let trusted = [0, geteuid().as_raw()];
        assert_eq!(exposed(&leaf, &trusted, |found| found.ino() == exempt).unwrap(), None);
    }

    #[test]
    fn a_directory_of_a_user_that_is_not_trusted_exposes_all_below_it() {
        let (_directory, root) = root();
        make(&root.join("a/b"), 0o700);
        let owner = geteuid().as_raw();
        // The owner is not trusted.
        let trusted: &[u32] = if owner == 0 { &[1] } else { &[0] };
        let exposed = exposed(&root.join("a/b"), trusted, |_| false).unwrap().unwrap();
        assert_eq!(exposed.owner, if owner == 0 { 0 } else { owner });
    }

    #[test]
    fn the_way_through_a_link_is_checked_too() {
        let (_directory, root) = root();
        make(&root.join("open"), 0o777);
        make(&root.join("real/leaf"), 0o700);
        symlink(root.join("real"), root.join("open/absolute")).unwrap();
        symlink("../real", root.join("open/relative")).unwrap();
        symlink("open/relative", root.join("indirect")).unwrap();
        for way in ["open/absolute/leaf", "open/relative/leaf", "indirect/leaf", "real/../open/relative/leaf"]
        {
            assert_eq!(found(&root.join(way)), Some((root.join("open"), 0o777)), "{way}");
        }
        assert_eq!(found(&root.join("real/leaf")), None);
        make(&root.join("open"), 0o755);
        assert_eq!(found(&root.join("indirect/leaf")), None);
    }

    #[test]
    fn a_way_without_an_end_is_an_error() {
        let (_directory, root) = root();
        symlink("loop", root.join("loop")).unwrap();
        assert!(exposed(&root.join("loop"), &[0, geteuid().as_raw()], |_| false).is_err());
        assert!(exposed(&root.join("none/leaf"), &[0, geteuid().as_raw()], |_| false).is_err());
    }
}
