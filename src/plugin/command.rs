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
    pub(crate) fn place(&self) -> &'static str {
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
        Command::Path(path) => return there(stat(path)),
        Command::Name(name) => name,
    };
    if let Some(known) = known
        && let Some(executable) = there(stat(known))?
    {
        return Ok(Some(executable));
    }
    find_in_path(name, path).map_or(Ok(None), |found| there(stat(&found)))
}

/// The first executable file of that name in a `PATH`. If none is executable, the first file of that name: its start
/// fails with the reason. Relative entries are skipped, because they depend on the working directory.
pub fn find_in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    let candidates = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
    let mut forbidden = None;
    for candidate in candidates {
        let Ok(metadata) = fs::metadata(&candidate) else { continue };
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            return Some(candidate);
        } else if metadata.is_file() && forbidden.is_none() {
            forbidden = Some(candidate);
        }
    }
    forbidden
}

/// Follows symbolic links: a package manager upgrades a plugin by changing the link.
fn stat(path: &Path) -> io::Result<Executable> {
    let metadata = fs::metadata(path)?;
    Ok(Executable { path: path.to_owned(), inode: metadata.ino(), modified: metadata.modified()? })
}

fn there(stat: io::Result<Executable>) -> io::Result<Option<Executable>> {
    match stat {
        Ok(executable) => Ok(Some(executable)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    fn file(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap();
    }

    fn find(name: &str, path: &[&Path], known: Option<&Path>) -> Option<PathBuf> {
        let path = std::env::join_paths(path).unwrap();
        look(&Command::Name(name.into()), &path, known).unwrap().map(|executable| executable.path)
    }

    #[test]
    fn a_name_is_the_first_executable_file_in_path() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| dir.path().join(name));
        fs::create_dir_all(one.join("plugin")).unwrap(); // a directory is not a plugin
        file(&two.join("plugin"), 0o600);
        file(&three.join("plugin"), 0o700);
        assert_eq!(find("plugin", &[&one, &two, &three], None), Some(three.join("plugin")));
    }

    #[test]
    fn a_relative_directory_is_not_searched() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("plugin"), 0o700);
        let up = "../".repeat(std::env::current_dir().unwrap().components().count());
        let relative = Path::new(&up).join(dir.path().strip_prefix("/").unwrap());
        assert!(relative.join("plugin").exists());
        assert_eq!(find("plugin", &[&relative, Path::new("")], None), None);
    }

    #[test]
    fn a_file_that_may_not_be_run_is_found_when_there_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("plugin"), 0o600);
        assert_eq!(find("plugin", &[dir.path()], None), Some(dir.path().join("plugin")));
    }

    #[test]
    fn a_name_stays_where_it_was_found_until_it_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        let (at_one, at_two) = (one.join("plugin"), two.join("plugin"));
        assert_eq!(find("plugin", &[&one, &two], None), None);
        file(&at_two, 0o700);
        assert_eq!(find("plugin", &[&one, &two], None), Some(at_two.clone()));
        file(&at_one, 0o700);
        assert_eq!(find("plugin", &[&one, &two], Some(&at_two)), Some(at_two.clone()));
        fs::remove_file(&at_two).unwrap();
        assert_eq!(find("plugin", &[&one, &two], Some(&at_two)), Some(at_one.clone()));
        fs::remove_file(&at_one).unwrap();
        assert_eq!(find("plugin", &[&one, &two], Some(&at_one)), None);
    }

    #[test]
    fn an_upgraded_file_is_another_executable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugin");
        file(&path, 0o700);
        let command = Command::Path(path.clone());
        let first = look(&command, OsStr::new(""), None).unwrap().unwrap();
        file(&dir.path().join("new"), 0o700);
        fs::rename(dir.path().join("new"), &path).unwrap();
        let second = look(&command, OsStr::new(""), None).unwrap().unwrap();
        assert_eq!((&first.path, &second.path), (&path, &path));
        assert_ne!(first, second);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("file"), 0o700);
        for path in ["absent", "file/below"] {
            let command = Command::Path(dir.path().join(path));
            assert_eq!(look(&command, OsStr::new(""), None).unwrap(), None, "{path}");
        }
    }
}
