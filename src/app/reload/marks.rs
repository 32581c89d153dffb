//! What shows that a file has changed, without reading it.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The state of one file. Two equal marks mean that it has not changed in between; symbolic links are followed.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Mark {
    There { place: (u64, u64), size: u64, modified: (i64, i64), changed: (i64, i64) },
    Missing(io::ErrorKind),
}

/// The states of some files at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Marks(Vec<(PathBuf, Mark)>);

impl Marks {
    /// Looks at `files`. May block.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| (file.clone(), mark(file))).collect())
    }

    /// The files that are not as `self` says.
    pub(super) fn changed_in(&self, newer: &Self) -> Vec<PathBuf> {
        let pairs = newer.0.iter().filter(|pair| !self.0.contains(pair));
        pairs.map(|(file, _)| file.clone()).collect()
    }
}

fn mark(file: &Path) -> Mark {
    match fs::metadata(file) {
        // The time of the last change of the inode includes changes of its owner and its permissions.
        Ok(metadata) => Mark::There {
            place: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        },
        Err(error) => Mark::Missing(error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use credbroker_test_support::private_directory;

    use super::*;

    #[test]
    fn every_change_of_a_file_is_seen_and_no_other() {
        let dir = private_directory();
        let [file, other, link] = ["file", "other", "link"].map(|name| dir.path().join(name));
        fs::write(&other, "other").unwrap();
        symlink("file", &link).unwrap();
        let files = [file.clone(), other.clone(), link.clone()];
        let changes: [(&str, &dyn Fn()); 6] = [
            ("created", &|| fs::write(&file, "1").unwrap()),
            ("written", &|| fs::write(&file, "22").unwrap()),
            ("not writable", &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap()),
            ("renamed over", &|| {
                fs::write(dir.path().join("new"), "22").unwrap();
                fs::rename(dir.path().join("new"), &file).unwrap();
            }),
            ("removed", &|| fs::remove_file(&file).unwrap()),
            ("created again", &|| fs::write(&file, "22").unwrap()),
        ];
        for (what, change) in changes {
            let before = Marks::of(&files);
            assert_eq!(before.changed_in(&Marks::of(&files)), [""; 0].map(PathBuf::from), "{what}");
            change();
            assert_eq!(before.changed_in(&Marks::of(&files)), [file.clone(), link.clone()], "{what}");
        }
    }
}
