//! The commit in the version.

use std::fs;

use credbroker_test_support::private_directory;

use super::{PROGRAM, build};

const COMMIT: &str = "aebe6a2f0d1c2b3a495867768594a3b2c1d0e0f1";

#[test]
fn a_published_package_has_the_commit_that_cargo_recorded() {
    let directory = private_directory();
    let file = directory.path().join(".cargo_vcs_info.json");
    assert_eq!((build::packaged(directory.path()), build::commit(directory.path())), (None, None));
    fs::write(
        &file,
        format!("{{\n  \"git\": {{\n    \"sha1\": \"{COMMIT}\"\n  }},\n  \"path_in_vcs\": \"\"\n}}"),
    )
    .unwrap();
    assert_eq!(build::packaged(directory.path()), Some((COMMIT.to_owned(), vec![file.clone()])));
    for broken in ["{}", "{\"git\": {\"sha1\"", "{\"git\": {\"sha1\": \"main\"}}"] {
        fs::write(&file, broken).unwrap();
        assert_eq!(build::packaged(directory.path()), None, "{broken}");
    }
}

#[test]
fn a_work_tree_has_the_commit_that_is_checked_out() {
    let directory = private_directory();
    let git = directory.path().join(".git");
    fs::create_dir_all(git.join("refs/heads")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    assert_eq!(build::commit(directory.path()), None);
    fs::write(git.join("refs/heads/main"), format!("{COMMIT}\n")).unwrap();
    assert_eq!(build::commit(directory.path()).unwrap().0, COMMIT);
}

#[test]
fn the_program_prints_its_version() {
    let output = std::process::Command::new(PROGRAM).arg("--version").output().unwrap();
    let version = format!("credbroker {}", env!("CARGO_PKG_VERSION"));
    assert!(super::stdout(&output).starts_with(&version), "{output:?}");
}
