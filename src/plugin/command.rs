//! Which file a command is.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use super::Executable;

/// How a plugin's executable is named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// A bare name, looked up in the `PATH` of the plugin's inherited environment. As with client-go, a `PATH` in the
    /// stanza's own `env` is for the plugin and does not change which plugin that is.
    Name(String),
    /// An absolute path.
    Path(PathBuf),
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Finds a command's file, and remembers where for as long as it is there: a request costs one `stat`.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    found: RwLock<Option<PathBuf>>,
}

impl Lookup {
    /// The file that `command` is now; `None` if there is none. `path` is a `PATH`.
    pub(super) fn executable(
        &self,
        command: &Command,
        path: Option<&OsStr>,
    ) -> io::Result<Option<Executable>> {
        let name = match command {
            Command::Path(path) => return there(stat(path)),
            Command::Name(name) => name,
        };
        let known = self.found.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known
            && let Some(executable) = there(stat(&known))?
        {
            return Ok(Some(executable));
        }
        let found = search(name, path.unwrap_or_default());
        self.found.write().unwrap_or_else(PoisonError::into_inner).clone_from(&found);
        found.map_or(Ok(None), |found| there(stat(&found)))
    }
}

/// The first executable file of that name. When there is only one that may not be run, that one: to start it then
/// says what is wrong. Relative entries are skipped: they would mean something else in every working directory.
fn search(name: &str, path: &OsStr) -> Option<PathBuf> {
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

/// Follows symbolic links: a package manager that points the link elsewhere has upgraded the plugin.
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

    fn find(lookup: &Lookup, name: &str, path: &[&Path]) -> Option<PathBuf> {
        let path = std::env::join_paths(path).unwrap();
        lookup.executable(&Command::Name(name.into()), Some(&path)).unwrap().map(|executable| executable.path)
    }

    #[test]
    fn a_name_is_the_first_executable_file_in_path() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| dir.path().join(name));
        fs::create_dir_all(one.join("plugin")).unwrap(); // a directory is no plugin
        file(&two.join("plugin"), 0o600);
        file(&three.join("plugin"), 0o700);
        let found = find(&Lookup::default(), "plugin", &[Path::new("relative"), &one, &two, &three]);
        assert_eq!(found, Some(three.join("plugin")));
    }

    #[test]
    fn a_file_that_may_not_be_run_is_found_when_there_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("plugin"), 0o600);
        assert_eq!(find(&Lookup::default(), "plugin", &[dir.path()]), Some(dir.path().join("plugin")));
    }

    #[test]
    fn a_name_stays_where_it_was_found_until_it_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        let lookup = Lookup::default();
        assert_eq!(find(&lookup, "plugin", &[&one, &two]), None);
        file(&two.join("plugin"), 0o700);
        assert_eq!(find(&lookup, "plugin", &[&one, &two]), Some(two.join("plugin")));
        file(&one.join("plugin"), 0o700);
        assert_eq!(find(&lookup, "plugin", &[&one, &two]), Some(two.join("plugin")));
        fs::remove_file(two.join("plugin")).unwrap();
        assert_eq!(find(&lookup, "plugin", &[&one, &two]), Some(one.join("plugin")));
        fs::remove_file(one.join("plugin")).unwrap();
        assert_eq!(find(&lookup, "plugin", &[&one, &two]), None);
    }

    #[test]
    fn an_upgraded_file_is_another_executable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugin");
        file(&path, 0o700);
        let command = Command::Path(path.clone());
        let first = Lookup::default().executable(&command, None).unwrap().unwrap();
        file(&dir.path().join("new"), 0o700);
        fs::rename(dir.path().join("new"), &path).unwrap();
        let second = Lookup::default().executable(&command, None).unwrap().unwrap();
        assert_eq!((&first.path, &second.path), (&path, &path));
        assert_ne!(first, second);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        file(&dir.path().join("file"), 0o700);
        for path in ["absent", "file/below"] {
            let command = Command::Path(dir.path().join(path));
            assert_eq!(Lookup::default().executable(&command, None).unwrap(), None, "{path}");
        }
    }
}
