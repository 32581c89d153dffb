//! The files that a configuration depends on.

use std::path::{Path, PathBuf};

/// The files of one reading of the configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sources {
    /// Every file whose change may change the configuration, whether it exists or not.
    pub followed: Vec<PathBuf>,
    /// Those of them that were not empty: configurations and kubeconfigs.
    pub filled: Vec<PathBuf>,
}

impl Sources {
    /// The files that `earlier` found filled, and that are empty or missing now.
    pub fn lost_since(&self, earlier: &Self) -> Vec<PathBuf> {
        let is_lost = |file: &&PathBuf| self.followed.contains(file) && !self.filled.contains(file);
        earlier.filled.iter().filter(is_lost).cloned().collect()
    }

    pub(super) fn follow(&mut self, file: &Path) {
        add(&mut self.followed, file);
    }

    /// The contents of `file` were read.
    pub(super) fn read(&mut self, file: &Path, contents: Option<&[u8]>) {
        if contents.is_some_and(|contents| !contents.trim_ascii().is_empty()) {
            add(&mut self.filled, file);
        }
    }

    pub(super) fn append(&mut self, other: &Self) {
        other.followed.iter().for_each(|file| add(&mut self.followed, file));
        other.filled.iter().for_each(|file| add(&mut self.filled, file));
    }
}

fn add(files: &mut Vec<PathBuf>, file: &Path) {
    if !files.iter().any(|known| known == file) {
        files.push(file.to_owned());
    }
}

#[cfg(test)]
mod tests;
