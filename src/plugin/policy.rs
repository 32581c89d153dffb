//! Which plugins may run: the plugin policy of client-go (KEP-3104).

use std::{ffi::OsStr, path::Path};

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
    /// Why `command`, which was found at `path`, may not run. Bare names are looked up in `search`, a `PATH`.
    ///
    /// As in client-go, an entry permits the plugin if it equals the command or the path, or if it has the same base name
    /// and leads to the same path through `search`. Symbolic links are not followed.
    pub(super) fn refusal(&self, command: &Command, path: &Path, search: Option<&OsStr>) -> Option<Refusal> {
        let entries = match self {
            Self::AllowAll => return None,
            Self::DenyAll => return Some(Refusal::DenyAll),
            Self::Allowlist(entries) => entries,
        };
        let written = cleaned(&command.to_string());
        let same_file = |entry: &str| {
            Path::new(entry).file_name() == path.file_name()
                && !entry.contains('/')
                && search.and_then(|search| find_in_path(entry, search)).is_some_and(|found| found == path)
        };
        let permits = |entry: &String| *entry == written || Path::new(entry) == path || same_file(entry);
        (!entries.iter().any(permits)).then(|| Refusal::NotListed { path: path.to_owned() })
    }
}

/// `path` without `.`, `..` and double separators where that needs no file system, as Go's `filepath.Clean` writes it.
pub fn cleaned(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => {
                parts.pop();
            }
            ("..", _) if is_absolute => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
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
            assert_eq!(cleaned(path), expected, "{path}");
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
            let refusal = policy.refusal(&command, runs, Some(&search));
            assert_eq!(refusal.is_none(), is_permitted, "{entry} {command}");
        }
        let odd = Command::Path(first.parent().unwrap().join("./../first/plugin"));
        let policy = PluginPolicy::Allowlist(vec![first_text]);
        assert_eq!(policy.refusal(&odd, Path::new("/elsewhere"), None), None, "the command is cleaned");
        assert_eq!(PluginPolicy::DenyAll.refusal(&name(), &first, None), Some(Refusal::DenyAll));
        assert_eq!(PluginPolicy::AllowAll.refusal(&name(), &first, None), None);
    }
}
