//! Whether other users decide what is in a file: one that says what runs or whom to trust, or that has records.

mod group;

use std::{
    fs::Metadata,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

use crate::paths::{Exposed, WRITABLE_BY_OTHERS, exposed};

pub use group::has_private_group;

/// How a user other than this one and root can decide what is in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unsafe {
    /// The file belongs to that user.
    Owner {
        /// The file.
        path: PathBuf,
        /// Uid of its owner.
        owner: u32,
        /// This user.
        own: u32,
    },
    /// The file can be written by others.
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// A directory or a link on the way to it can be changed by others.
    Replaceable {
        /// The directory or the link.
        by: Exposed,
        /// This user.
        own: u32,
    },
}

impl Unsafe {
    /// The problem and its remedy. `so` is what the other users can do with it.
    pub fn problem(&self, so: &str) -> String {
        match self {
            Self::Owner { path, owner, own } => format!(
                "belongs to uid {owner}, who can {so}; it must belong to uid {own} or to root: check what is in it, then run `chown {own} {}`",
                shell_word(path)
            ),
            Self::Writable { path } => format!(
                "users other than its owner can write to it, and so {so}; run `chmod go-w {}`",
                shell_word(path)
            ),
            Self::Replaceable { by: Exposed { path, owner, mode }, own } => {
                let (at, word) = (path.display(), shell_word(path));
                let remedy = if [*own, 0].contains(owner) {
                    format!("run `chmod go-w {word}`")
                } else {
                    format!(
                        "it must belong to uid {own} or to root: move the file to a directory of yours, or run `chown -h {own} {word}`"
                    )
                };
                format!(
                    "other users can replace it, and so {so}, because {at} belongs to uid {owner} and has mode {mode:04o}; {remedy}"
                )
            }
        }
    }
}

/// How others than this user and root can decide what is in the file at `path`, of which `found` is what was opened. Its
/// owner and its mode always count; those of the directories and links on the way do not on a mount that is read-only for
/// this process. A group that has no member but the owner may write.
///
/// # Errors
///
/// The way cannot be looked at.
pub fn unsafe_file(path: &Path, found: &Metadata) -> io::Result<Vec<Unsafe>> {
    let own = geteuid().as_raw();
    let mut problems = Vec::new();
    if ![own, 0].contains(&found.uid()) {
        problems.push(Unsafe::Owner { path: path.to_owned(), owner: found.uid(), own });
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 && !has_private_group(path, found) {
        problems.push(Unsafe::Writable { path: path.to_owned() });
    }
    problems.extend(unsafe_way(path)?);
    Ok(problems)
}

/// How others than this user and root can change where `path` leads. A file that it leads to is not judged.
///
/// # Errors
///
/// The way cannot be looked at.
pub fn unsafe_way(path: &Path) -> io::Result<Option<Unsafe>> {
    let own = geteuid().as_raw();
    let is_exempt = |at: &Path, found: &Metadata| {
        found.is_file() || ([own, 0].contains(&found.uid()) && has_private_group(at, found))
    };
    Ok(exposed(path, &[own, 0], is_exempt)?.map(|by| Unsafe::Replaceable { by, own }))
}

/// How others than this user and root can make or replace files in the directory at `path`.
///
/// # Errors
///
/// The way cannot be looked at.
pub fn unsafe_directory(path: &Path) -> io::Result<Option<Unsafe>> {
    let by = unsafe_way(path)?;
    // A sticky directory is safe on the way, but every user can make files in it.
    let (own, found) = (geteuid().as_raw(), path.metadata()?);
    let is_shared = found.mode() & WRITABLE_BY_OTHERS != 0 && !has_private_group(path, &found);
    let itself = || Exposed { path: path.to_owned(), owner: found.uid(), mode: found.mode() & 0o7777 };
    Ok(by.or_else(|| is_shared.then(|| Unsafe::Replaceable { by: itself(), own })))
}

/// `path` as a shell reads it.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@:,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests;
