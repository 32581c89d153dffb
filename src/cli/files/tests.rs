use std::os::unix::fs::symlink;

use credbroker_test_support::private_directory;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_private_file_is_replaced_whole_and_readable_by_its_owner_only() {
    let dir = private_directory();
    let path = dir.path().join("out");
    fs::write(&path, "a longer text that was there before").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let file = Locked::take(&path).unwrap();
    file.write_private("new").unwrap();
    drop(file);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "neither a lock nor a temporary file is left");
    let error = Locked::take(&dir.path().join("absent/out")).unwrap_err();
    assert!(format!("{error:#}").contains("cannot be written: "), "{error:#}");
}

#[test]
fn a_file_that_is_rewritten_keeps_its_mode_and_the_link_to_it() {
    let dir = private_directory();
    let (path, link) = (dir.path().join("config"), dir.path().join("link"));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    symlink("config", &link).unwrap();
    let file = Locked::take(&link).unwrap();
    let mut said = Vec::new();
    file.say_if_link("changed", &mut said).unwrap();
    let target = fs::canonicalize(&path).unwrap().display().to_string();
    assert!(String::from_utf8(said).unwrap().ends_with(&format!("was changed: {target}\n")));
    file.rewrite("new").unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o640));
    assert!(link.symlink_metadata().unwrap().is_symlink());
}

/// kubectl creates the same lock.
#[test]
fn a_file_that_another_program_changes_is_left_alone() {
    let dir = private_directory();
    let path = dir.path().join("config");
    let first = Locked::take(&path).unwrap();
    let error = Locked::take(&path).unwrap_err().to_string();
    assert!(error.contains("is locked") && error.contains("config.lock"), "{error}");
    drop(first);
    fs::write(&path, "").unwrap();
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    let first = Locked::take(&link).unwrap();
    for name in [&link, &path] {
        assert!(Locked::take(name).unwrap_err().to_string().contains("is locked"), "{}", name.display());
    }
    drop(first);
    let _by_name = Locked::take(&path).unwrap();
    assert!(Locked::take(&link).unwrap_err().to_string().contains("is locked"));
    assert!(!dir.path().join("link.lock").exists(), "no lock is left");
}

#[test]
fn a_link_that_leads_nowhere_and_what_is_not_a_file_are_refused() {
    let dir = private_directory();
    let link = dir.path().join("link");
    symlink("absent", &link).unwrap();
    let refusal = |path: &Path| format!("{:#}", Locked::take(path).unwrap_err());
    assert!(refusal(&link).contains("a broken symbolic link"), "{}", refusal(&link));
    assert!(refusal(dir.path()).contains("not a regular file"), "{}", refusal(dir.path()));
    assert!(!dir.path().join("absent").exists());
}
