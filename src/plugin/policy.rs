//! Which plugins may run: the plugin policy of client-go (KEP-3104).

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

use super::{command::Command, find_in_path, refusal::Refusal};

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
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, expected) in [
            ("", "."),
            ("abc/def/", "abc/def"),
            ("/", "/"),
            ("./abc//def", "abc/def"),
            ("../../abc", "../../abc"),
            ("/abc/../../..", "/"),
            ("abc/../../././../def", "../../def"),
            ("/abc/def/../ghi/../jkl", "/abc/jkl"),
        ] {
            assert_eq!(cleaned(Path::new(path)).as_os_str(), expected, "{path}");
        }
    }

    /// The scenarios of KEP-3104: two directories with a plugin of the same name, of which `search` has both.
    #[test]
    fn an_entry_permits_the_command_as_written_or_the_file_that_runs() {
        let home = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| home.path().join(name));
        for directory in [&first, &second] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("plugin"), "").unwrap();
            fs::set_permissions(directory.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let search = std::env::join_paths([&first, &second]).unwrap();
        let [first, second] = [first, second].map(|directory| directory.join("plugin"));
        let [first_text, second_text] = [&first, &second].map(|path| path.to_str().unwrap().to_owned());
        let name = || Command::Name("plugin".into());
        let path = |path: &Path| Command::Path(path.to_owned());
        for (entry, command, runs, is_permitted) in [
            ("plugin", name(), &first, true),
            (&*first_text, name(), &first, true),
            (&*second_text, name(), &first, false),
            ("plugin", path(&first), &first, true), // the name leads there
            ("plugin", path(&second), &second, false),
            (&*second_text, path(&second), &second, true),
            (&*first_text, path(&second), &second, false),
            ("other", name(), &first, false),
        ] {
            let policy = PluginPolicy::Allowlist(vec!["unrelated".into(), entry.into()]);
            let refusal = policy.refusal(&command, Some(runs), Some(&search));
            assert_eq!(refusal.is_none(), is_permitted, "{entry} {command}");
        }
    }

    #[test]
    fn a_plugin_that_does_not_exist_is_permitted_only_as_written() {
        let command = Command::Name("absent".into());
        let listed = |entry: &str| PluginPolicy::Allowlist(vec![entry.into()]);
        let refusal = |policy: PluginPolicy| policy.refusal(&command, None, Some("/usr/bin".as_ref()));
        assert_eq!(refusal(listed("absent")), None);
        assert_eq!(refusal(listed("/usr/bin/absent")), Some(Refusal::NotListed { command: "absent".into() }));
        assert_eq!(refusal(PluginPolicy::DenyAll), Some(Refusal::DenyAll));
        assert_eq!(refusal(PluginPolicy::AllowAll), None);
    }
}
