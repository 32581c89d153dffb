//! Commands, and the files that they run.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// How a plugin's executable is named.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Command {
    /// A bare name, looked up in the `PATH` that the plugin inherits. As with client-go, a `PATH` in the stanza's own
    /// `env` reaches the plugin but does not change the look-up.
    Name(String),
    /// An absolute path.
    Path(PathBuf),
}

/// A file to run, and the values that change when it is replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Executable {
    /// Absolute path.
    pub path: PathBuf,
    /// Inode number.
    pub inode: u64,
    /// Time of the last change to its contents.
    pub modified: SystemTime,
}

impl Command {
    /// Where the command is looked up, for the end of the message that it is not installed.
    pub fn place(&self) -> &'static str {
        match self {
            Self::Name(_) => " in the broker's PATH",
            Self::Path(_) => "",
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The file that `command` currently means; `None` if there is none. A bare name is looked up in `path`, a `PATH`. The
/// file where it was found last (`known`) is kept while it exists.
pub(super) fn look(command: &Command, path: &OsStr, known: Option<&Path>) -> io::Result<Option<Executable>> {
    let name = match command {
        Command::Path(path) => return executable(path),
        Command::Name(name) => name,
    };
    match known.map_or(Ok(None), executable)? {
        Some(executable) => Ok(Some(executable)),
        None => find_in_path(name, path).map_or(Ok(None), |found| executable(&found)),
    }
}

/// The first executable file of that name in a `PATH`. If none is executable, the first file of that name: its start
/// fails with the reason. Relative entries are skipped, because they depend on the working directory.
pub fn find_in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    let candidates = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
    let mut forbidden = None;
    for candidate in candidates {
        let Some(file) = fs::metadata(&candidate).ok().filter(fs::Metadata::is_file) else { continue };
        if file.permissions().mode() & 0o111 != 0 {
            return Some(candidate);
        }
        forbidden.get_or_insert(candidate);
    }
    forbidden
}

/// The file at `path`, if there is one. Follows symbolic links: a package manager upgrades a plugin by changing one.
fn executable(path: &Path) -> io::Result<Option<Executable>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let metadata = match fs::metadata(path) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
        metadata => metadata?,
    };
    Ok(Some(Executable { path: path.to_owned(), inode: metadata.ino(), modified: metadata.modified()? }))
}

#[cfg(test)]
mod tests;
