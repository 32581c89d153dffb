use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
};

use rustix::fs::mkdirat;

use super::*;

#[test]
fn a_deep_wide_and_unreadable_tree_is_removed() {
    let base = tempfile::tempdir().unwrap();
    let (top, other) = (base.path().join("top"), base.path().join("other"));
    fs::create_dir(&top).unwrap();
    fs::write(&other, "").unwrap();
    let mut at = open(CWD, &top).unwrap();
    for _ in 0..10_000 {
        mkdirat(&at, c"d", Mode::RWXU).unwrap();
        at = open(&at, c"d").unwrap();
    }
    for name in ["1", "2"] {
        fs::create_dir_all(top.join(name).join("unreadable")).unwrap();
    }
    fs::write(top.join("3"), "").unwrap();
    symlink(base.path(), top.join("d/link")).unwrap();
    fs::set_permissions(top.join("2/unreadable"), Permissions::from_mode(0o000)).unwrap();
    remove_tree(&top).unwrap();
    assert!(!top.exists() && other.exists());
    assert!(remove_tree(&top).is_err());
}
