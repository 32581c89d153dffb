use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Command,
};

use rustix::{
    fs::mkdirat,
    process::{Resource, Rlimit, setrlimit},
};

use super::*;

#[test]
fn a_deep_wide_and_unreadable_tree_is_removed() {
    let base = tempfile::tempdir().unwrap();
    let (top, other) = (base.path().join("top"), base.path().join("other"));
    fs::create_dir(&top).unwrap();
    fs::write(&other, "").unwrap();
    deepen(&top, 10_000);
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

/// Why this is not [`fs::remove_dir_all`].
#[test]
fn a_deep_tree_takes_few_descriptors() {
    const ALONE: &str = "CREDBROKER_TEST_ALONE";
    #[expect(clippy::disallowed_methods, reason = "the limit is one of the whole process")]
    if std::env::var_os(ALONE).is_none() {
        let mut test = Command::new(std::env::current_exe().unwrap());
        let name = "removal::tests::a_deep_tree_takes_few_descriptors";
        assert!(test.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let base = tempfile::tempdir().unwrap();
    deepen(base.path(), 1_000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: Some(128) }).unwrap();
    let error = fs::remove_dir_all(base.path()).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::MFILE), "{error}");
    remove_tree(base.path()).unwrap();
}

fn deepen(top: &Path, levels: usize) {
    let mut at = open(CWD, top).unwrap();
    for _ in 0..levels {
        mkdirat(&at, c"d", Mode::RWXU).unwrap();
        at = open(&at, c"d").unwrap();
    }
}
