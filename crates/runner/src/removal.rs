//! Removes what a plugin has left in its directory, however deep and unreadable it is.
//!
//! [`std::fs::remove_dir_all`] does not: it calls itself for each level, and holds a descriptor for each. In a tree of 5,000
//! levels it fails under the usual limit of 1,024 open files, and takes descriptors that connections need. In one of 20,000,
//! without that limit, the stack overflows and ends the broker. It does not enter directories that the plugin has made
//! unreadable.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, chmodat, openat, renameat, unlinkat},
    io::Errno,
    path::Arg,
};

/// How many directories are open at a time. What is deeper moves up first.
const OPEN: usize = 32;
/// Limits the removal of a directory that a process fills again and again.
const PASSES: usize = 100_000;

/// Removes the directory `top` and all that is in it. Follows no symbolic link.
pub(crate) fn remove_tree(top: &Path) -> io::Result<()> {
    let mut removal = Removal { top: open(CWD, top)?, moved: 0 };
    for _ in 0..PASSES {
        let before = removal.moved;
        removal.clear(&open(&removal.top, c".")?, OPEN)?;
        if removal.moved == before {
            return Ok(unlinkat(CWD, top, AtFlags::REMOVEDIR)?);
        }
    }
    Err(io::Error::other("a process fills it"))
}

struct Removal {
    top: OwnedFd,
    moved: u64,
}

impl Removal {
    /// Empties a directory, and moves up what is `levels` below it.
    fn clear(&mut self, directory: &OwnedFd, levels: usize) -> io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            match unlinkat(directory, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => self.remove(directory, name, levels)?,
                removed => removed?,
            }
        }
        Ok(())
    }

    fn remove(&mut self, parent: &OwnedFd, name: &CStr, levels: usize) -> io::Result<()> {
        // The plugin may have made it unreadable.
        chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
        let Some(levels) = levels.checked_sub(1) else { return self.move_up(parent, name) };
        self.clear(&open(parent, name)?, levels)?;
        Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    fn move_up(&mut self, parent: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            match renameat(parent, name, &self.top, self.moved.to_string()) {
                // The plugin has used this name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                moved => return Ok(moved?),
            }
        }
    }
}

fn open(directory: impl AsFd, path: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
