//! What shows that a file has changed, without reading it.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The state of one file. Two equal marks mean that it has not changed in between; symbolic links are followed.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Mark {
    There { place: (u64, u64), size: u64, modified: (i64, i64), changed: (i64, i64), way: Vec<Permissions> },
    Missing(io::ErrorKind),
}

/// Mode, uid and gid of a directory; `None`: it cannot be looked at.
type Permissions = Option<(u32, u32, u32)>;

/// The states of some files at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Marks(Vec<(PathBuf, Mark)>);

impl Marks {
    /// Looks at `files`. May block.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let mut known = HashMap::new();
        Self(files.iter().map(|file| (file.clone(), mark(file, &mut known))).collect())
    }

    /// The files that are not as `self` says.
    pub(super) fn changed_in(&self, newer: &Self) -> Vec<PathBuf> {
        let pairs = newer.0.iter().filter(|pair| !self.0.contains(pair));
        pairs.map(|(file, _)| file.clone()).collect()
    }
}

/// `known` are directories that were looked at for other files.
fn mark(file: &Path, known: &mut HashMap<PathBuf, Permissions>) -> Mark {
    match fs::metadata(file) {
        // The time of the last change of the inode includes changes of its owner and its permissions.
        Ok(metadata) => Mark::There {
            place: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            way: way(file, known),
        },
        Err(error) => Mark::Missing(error.kind()),
    }
}

/// The directories above `file`, by its name and where that leads to: who may write to them decides whether it is used.
fn way(file: &Path, known: &mut HashMap<PathBuf, Permissions>) -> Vec<Permissions> {
    let place = fs::canonicalize(file).ok().filter(|place| place != file);
    let directories = [Some(file), place.as_deref()].into_iter().flatten();
    let directories = directories.flat_map(|path| path.ancestors().skip(1));
    directories
        .map(|directory| {
            let look = || {
                let found = fs::metadata(directory).ok()?;
                Some((found.mode(), found.uid(), found.gid()))
            };
            *known.entry(directory.to_owned()).or_insert_with(look)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use credbroker_test_support::private_directory;

    use super::*;

    #[test]
    fn every_change_of_a_file_is_seen_and_no_other() {
        let dir = private_directory();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let [file, other, link] = ["inner/file", "other", "link"].map(|name| dir.path().join(name));
        fs::write(&other, "other").unwrap();
        symlink("inner/file", &link).unwrap();
        let files = [file.clone(), other.clone(), link.clone()];
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let changes: [(&str, &dyn Fn()); 9] = [
            ("created", &|| fs::write(&file, "1").unwrap()),
            ("written", &|| fs::write(&file, "22").unwrap()),
            ("not writable", &|| mode(&file, 0o400)),
            ("renamed over", &|| {
                fs::write(dir.path().join("new"), "22").unwrap();
                fs::rename(dir.path().join("new"), &file).unwrap();
            }),
            ("removed", &|| fs::remove_file(&file).unwrap()),
            ("created again", &|| fs::write(&file, "22").unwrap()),
            ("can be replaced by all users", &|| mode(&inner, 0o777)),
            ("can no longer be replaced", &|| mode(&inner, 0o755)),
            ("linked to another place", &|| {
                fs::remove_file(&file).unwrap();
                symlink("../other", &file).unwrap();
            }),
        ];
        for (what, change) in changes {
            let before = Marks::of(&files);
            assert_eq!(before.changed_in(&Marks::of(&files)), [""; 0].map(PathBuf::from), "{what}");
            change();
            assert_eq!(before.changed_in(&Marks::of(&files)), [file.clone(), link.clone()], "{what}");
        }
    }

    #[test]
    fn other_permissions_of_a_directory_on_the_way_are_a_change() {
        let dir = private_directory();
        let root = fs::canonicalize(dir.path()).unwrap();
        for directory in ["names", "places/real/deep"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("places/real/deep/file"), "1").unwrap();
        symlink(root.join("places/real"), root.join("names/link")).unwrap();
        let files = [root.join("names/link/deep/file")];
        // `names` is above the name alone, and `places` above the place alone.
        for directory in ["", "names", "places", "places/real", "places/real/deep"] {
            let before = Marks::of(&files);
            fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o750)).unwrap();
            assert_eq!(before.changed_in(&Marks::of(&files)), files, "{directory:?}");
        }
    }
}
