//! Which plugins may run: the plugin policy of client-go (KEP-3104).

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

use super::{
    command::{Command, find_in_path},
    refusal::Refusal,
};

/// Which plugins may run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PluginPolicy {
    /// All.
    #[default]
    AllowAll,
    /// None.
    DenyAll,
    /// Those in the list: names and absolute paths, cleaned.
    Allowlist(Vec<String>),
}

impl PluginPolicy {
    /// Why `command`, which was found at `path` (`None`: nowhere), may not run. Bare names are looked up in `search`, a
    /// `PATH`.
    ///
    /// As in client-go, an entry permits the plugin if it equals the command or the path, or if it is a bare name that
    /// leads to the same path through `search`. Symbolic links are not followed. A plugin that is not permitted is refused
    /// whether it exists or not.
    pub(super) fn refusal(
        &self,
        command: &Command,
        path: Option<&Path>,
        search: Option<&OsStr>,
    ) -> Option<Refusal> {
        let entries = match self {
            Self::AllowAll => return None,
            Self::DenyAll => return Some(Refusal::DenyAll),
            Self::Allowlist(entries) => entries,
        };
        let written = command.to_string();
        let leads_there = |entry: &str| {
            let has_its_name = path.is_some_and(|path| path.file_name() == Some(OsStr::new(entry)));
            has_its_name && search.and_then(|search| find_in_path(entry, search)).as_deref() == path
        };
        let permits =
            |entry: &String| *entry == written || path == Some(Path::new(entry)) || leads_there(entry);
        let refused = || path.map_or_else(|| written.clone().into(), Path::to_owned);
        (!entries.iter().any(permits)).then(|| Refusal::NotListed { command: refused() })
    }
}

/// `path` without `.`, `..` and double separators, as Go's `filepath.Clean` writes it. client-go runs the cleaned path, so
/// that `..` after a symbolic link leads to the same file as in its allowlist.
pub fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match (part, clean.components().next_back()) {
            (Component::CurDir, _) | (Component::ParentDir, Some(Component::RootDir)) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                clean.pop();
            }
            _ => clean.push(part),
        }
    }
    if clean.as_os_str().is_empty() { ".".into() } else { clean }
}

#[cfg(test)]
mod tests;
