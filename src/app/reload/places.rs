//! Which directories show every change of a file, through all symbolic links on the way to it.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{OsStr, OsString},
    fs,
    path::{Component, Path, PathBuf},
};

/// Symbolic links that are followed, as many as the kernel follows.
const LINKS: usize = 40;

/// The directories to watch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct WatchedPlaces(pub(super) BTreeMap<PathBuf, Names>);

/// The names of one directory that matter, and whether each may be a file whose contents matter, and not only a link or a
/// directory on the way.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Names(BTreeMap<OsString, bool>);

impl Names {
    pub(super) fn contains(&self, name: &OsStr) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn may_be_file(&self, name: &OsStr) -> bool {
        self.0.get(name).is_some_and(|is_file| *is_file)
    }

    /// Those that may be files whose contents matter.
    pub(super) fn files(&self) -> impl Iterator<Item = &OsStr> {
        self.0.iter().filter(|(_, is_file)| **is_file).map(|(name, _)| name.as_os_str())
    }
}

impl WatchedPlaces {
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

    fn name(&mut self, directory: &Path, name: OsString, may_be_file: bool) {
        let names = self.0.entry(directory.to_owned()).or_default();
        *names.0.entry(name).or_default() |= may_be_file;
    }
}

/// The parts of a path that lead somewhere.
fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests;
