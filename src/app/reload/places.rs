//! Which directories show every change of a file, through all symbolic links on the way to it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    fs,
    path::{Component, Path, PathBuf},
};

/// Symbolic links that are followed, as many as the kernel follows.
const LINKS: usize = 40;

/// The directories to watch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Places(pub(super) BTreeMap<PathBuf, Names>);

/// The names of one directory that matter.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Names {
    names: BTreeSet<OsString>,
    /// Whether one of them may be a file whose contents matter, and not only a link or a directory on the way.
    pub(super) has_files: bool,
}

impl Names {
    pub(super) fn contains(&self, name: &OsStr) -> bool {
        self.names.contains(name)
    }
}

impl Places {
    /// The places of `files`, which are absolute. They need not exist: then the place where they would begin to exist is
    /// among them. May block.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let mut places = Self::default();
        for file in files {
            places.add(file);
        }
        places
    }

    fn add(&mut self, file: &Path) {
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        let mut rest = parts(file);
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let path = at.join(&part);
            let found = fs::symlink_metadata(&path).map(|metadata| metadata.file_type());
            let is_last = rest.is_empty();
            match found {
                Ok(kind) if kind.is_symlink() && links < LINKS => {
                    links += 1;
                    self.name(&at, part, is_last);
                    let Ok(target) = fs::read_link(&path) else { return };
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    let mut parts = parts(&target);
                    parts.append(&mut rest);
                    rest = parts;
                }
                Ok(kind) if kind.is_dir() && !is_last => at = path,
                // The file, or the first part that does not exist.
                _ => return self.name(&at, part, is_last),
            }
        }
    }

    fn name(&mut self, directory: &Path, name: OsString, has_files: bool) {
        let names = self.0.entry(directory.to_owned()).or_default();
        names.names.insert(name);
        names.has_files |= has_files;
    }
}

/// The parts of a path that lead somewhere.
fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use credbroker_test_support::private_directory;

    use super::*;

    /// The places of `file`, below `root`.
    fn of(root: &Path, file: &str) -> Vec<(String, Vec<String>, bool)> {
        let places = Places::of(&[root.join(file)]);
        let below = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
        let text = |names: &Names| names.names.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        places.0.iter().map(|(dir, names)| (below(dir), text(names), names.has_files)).collect()
    }

    fn place(directory: &str, name: &str, has_files: bool) -> (String, Vec<String>, bool) {
        (directory.into(), vec![name.into()], has_files)
    }

    #[test]
    fn a_file_is_seen_in_its_directory_whether_it_exists_or_not() {
        let dir = private_directory();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("kube")).unwrap();
        fs::write(root.join("kube/config"), "").unwrap();
        for file in ["kube/config", "kube/absent"] {
            let name = file.strip_prefix("kube/").unwrap();
            assert_eq!(of(&root, file), [place("kube", name, true)]);
        }
        assert_eq!(of(&root, "kube/../kube/./config"), [place("kube", "config", true)]);
        assert_eq!(of(&root, "absent/a/b"), [place("", "absent", false)], "the first part that is missing");
        assert_eq!(of(&root, "kube/config/below"), [place("kube", "config", false)]);
    }

    #[test]
    fn each_link_on_the_way_is_seen() {
        let dir = private_directory();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("mount/..2026")).unwrap();
        fs::write(root.join("mount/..2026/config"), "").unwrap();
        symlink("..2026", root.join("mount/..data")).unwrap();
        symlink("..data/config", root.join("mount/config")).unwrap();
        symlink(root.join("mount"), root.join("link")).unwrap();
        let expected = [
            place("", "link", false),
            ("mount".into(), vec!["..data".into(), "config".into()], true),
            place("mount/..2026", "config", true),
        ];
        assert_eq!(of(&root, "link/config"), expected);
        assert_eq!(of(&root, "mount/config"), expected[1..]);
    }

    #[test]
    fn links_that_lead_nowhere_or_in_a_circle_end() {
        let dir = private_directory();
        let root = fs::canonicalize(dir.path()).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("nowhere/x", root.join("dangling")).unwrap();
        assert_eq!(of(&root, "loop"), [place("", "loop", true)]);
        assert_eq!(of(&root, "dangling"), [(String::new(), vec!["dangling".into(), "nowhere".into()], true)]);
    }
}
