use std::os::unix::fs::OpenOptionsExt as _;

use super::super::*;

fn file(path: &Path, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap();
}

fn find(name: &str, path: &[&Path], known: Option<&Path>) -> Option<PathBuf> {
    let path = std::env::join_paths(path).unwrap();
    current(&Command::Name(name.into()), &path, known).unwrap().map(|executable| executable.path)
}

#[test]
fn a_name_is_the_first_executable_file_in_path() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| dir.path().join(name));
    fs::create_dir_all(one.join("plugin")).unwrap(); // a directory is not a plugin
    file(&two.join("plugin"), 0o600);
    file(&three.join("plugin"), 0o700);
    assert_eq!(find("plugin", &[&one, &two, &three], None), Some(three.join("plugin")));
}

#[test]
fn a_relative_directory_is_not_searched() {
    let dir = tempfile::tempdir().unwrap();
    file(&dir.path().join("plugin"), 0o700);
    let up = "../".repeat(std::env::current_dir().unwrap().components().count());
    let relative = Path::new(&up).join(dir.path().strip_prefix("/").unwrap());
    assert!(relative.join("plugin").exists());
    assert_eq!(find("plugin", &[&relative, Path::new("")], None), None);
}

#[test]
fn a_file_that_may_not_be_run_is_found_when_there_is_no_other() {
    let dir = tempfile::tempdir().unwrap();
    file(&dir.path().join("plugin"), 0o600);
    assert_eq!(find("plugin", &[dir.path()], None), Some(dir.path().join("plugin")));
}

#[test]
fn a_name_stays_where_it_was_found_until_it_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    let (at_one, at_two) = (one.join("plugin"), two.join("plugin"));
    assert_eq!(find("plugin", &[&one, &two], None), None);
    file(&at_two, 0o700);
    assert_eq!(find("plugin", &[&one, &two], None), Some(at_two.clone()));
    file(&at_one, 0o700);
    assert_eq!(find("plugin", &[&one, &two], Some(&at_two)), Some(at_two.clone()));
    fs::remove_file(&at_two).unwrap();
    assert_eq!(find("plugin", &[&one, &two], Some(&at_two)), Some(at_one.clone()));
    fs::remove_file(&at_one).unwrap();
    assert_eq!(find("plugin", &[&one, &two], Some(&at_one)), None);
}

#[test]
fn an_upgraded_file_is_another_executable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugin");
    file(&path, 0o700);
    let command = Command::Path(path.clone());
    let first = current(&command, OsStr::new(""), None).unwrap().unwrap();
    file(&dir.path().join("new"), 0o700);
    fs::rename(dir.path().join("new"), &path).unwrap();
    let second = current(&command, OsStr::new(""), None).unwrap().unwrap();
    assert_eq!((&first.path, &second.path), (&path, &path));
    assert_ne!(first, second);
}

#[test]
fn a_path_that_leads_nowhere_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    file(&dir.path().join("file"), 0o700);
    for path in ["absent", "file/below"] {
        let command = Command::Path(dir.path().join(path));
        assert_eq!(current(&command, OsStr::new(""), None).unwrap(), None, "{path}");
    }
}
