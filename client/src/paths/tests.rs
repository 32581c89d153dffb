use std::{
    fs::{DirBuilder, set_permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
};

use rustix::process::geteuid;
use tempfile::TempDir;

use super::*;

/// A directory whose own path has no links.
fn root() -> (TempDir, PathBuf) {
    let directory = credbroker_test_support::private_directory();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn make(path: &Path, mode: u32) {
    DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
    set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn found(path: &Path) -> Option<(PathBuf, u32)> {
    let exposed = exposed(path, &[0, geteuid().as_raw()], |_, _| false).unwrap();
    exposed.map(|exposed| (exposed.path, exposed.mode))
}

#[test]
fn a_sticky_directory_is_shared() {
    let (_directory, root) = root();
    make(&root.join("a/b"), 0o700);
    let trusted = [0, geteuid().as_raw()];
    // Directories above may be sticky too, as /tmp is.
    let found = || shared(&root.join("a/b"), &trusted).unwrap().map(|found| found.path);
    let above = found();
    assert!(above.as_ref().is_none_or(|above| root.starts_with(above)), "{above:?}");
    make(&root.join("a"), 0o1777);
    assert_eq!(found(), above.or_else(|| Some(root.join("a"))));
}

#[test]
fn a_directory_that_others_can_write_to_exposes_all_below_it_unless_it_is_sticky() {
    let (_directory, root) = root();
    let leaf = root.join("a/b/c");
    make(&leaf, 0o755);
    assert_eq!(found(&leaf), None);
    for (mode, is_exposed) in
        [(0o777, true), (0o775, true), (0o772, true), (0o755, false), (0o1777, false), (0o3777, false)]
    {
        make(&root.join("a"), mode);
        assert_eq!(found(&leaf), is_exposed.then(|| (root.join("a"), mode)), "{mode:o}");
    }
    make(&root.join("a"), 0o777);
    let exempt = root.join("a").metadata().unwrap().ino();
    let trusted = [0, geteuid().as_raw()];
    assert_eq!(exposed(&leaf, &trusted, |_, found| found.ino() == exempt).unwrap(), None);
}

#[test]
fn a_directory_of_a_user_that_is_not_trusted_exposes_all_below_it() {
    let (_directory, root) = root();
    make(&root.join("a/b"), 0o700);
    let owner = geteuid().as_raw();
    // The owner is not trusted.
    let trusted: &[u32] = if owner == 0 { &[1] } else { &[0] };
    let exposed = exposed(&root.join("a/b"), trusted, |_, _| false).unwrap().unwrap();
    assert_eq!(exposed.owner, if owner == 0 { 0 } else { owner });
}

#[test]
fn the_way_through_a_link_is_checked_too() {
    let (_directory, root) = root();
    make(&root.join("open"), 0o777);
    make(&root.join("real/leaf"), 0o700);
    symlink(root.join("real"), root.join("open/absolute")).unwrap();
    symlink("../real", root.join("open/relative")).unwrap();
    symlink("open/relative", root.join("indirect")).unwrap();
    for way in ["open/absolute/leaf", "open/relative/leaf", "indirect/leaf", "real/../open/relative/leaf"] {
        assert_eq!(found(&root.join(way)), Some((root.join("open"), 0o777)), "{way}");
    }
    assert_eq!(found(&root.join("real/leaf")), None);
    make(&root.join("open"), 0o755);
    assert_eq!(found(&root.join("indirect/leaf")), None);
}

#[test]
fn a_way_without_an_end_is_an_error() {
    let (_directory, root) = root();
    symlink("loop", root.join("loop")).unwrap();
    assert!(exposed(&root.join("loop"), &[0, geteuid().as_raw()], |_, _| false).is_err());
    assert!(exposed(&root.join("none/leaf"), &[0, geteuid().as_raw()], |_, _| false).is_err());
}
