use std::os::unix::fs::symlink;

use credbroker_test_support::private_directory;

use super::super::*;

/// The directories of `file`, below `root`.
fn of(root: &Path, file: &str) -> Vec<(String, Vec<String>, bool)> {
    let directories = directories(&[root.join(file)]);
    let below = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    let text = |names: &Names| names.keys().map(|name| name.to_str().unwrap().to_owned()).collect();
    let has_files = |names: &Names| names.values().any(|may_be_file| *may_be_file);
    directories.iter().map(|(dir, names)| (below(dir), text(names), has_files(names))).collect()
}

fn place(directory: &str, name: &str, has_files: bool) -> (String, Vec<String>, bool) {
    (directory.into(), vec![name.into()], has_files)
}

#[test]
fn a_file_is_seen_in_its_directory_whether_it_exists_or_not() {
    let dir = private_directory();
    let root = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir(root.join("kube")).unwrap();
    fs::write(root.join("kube/config"), "").unwrap();
    for file in ["kube/config", "kube/absent"] {
        let name = file.strip_prefix("kube/").unwrap();
        assert_eq!(of(&root, file), [place("kube", name, true)]);
    }
    assert_eq!(of(&root, "kube/../kube/./config"), [place("kube", "config", true)]);
    assert_eq!(of(&root, "absent/a/b"), [place("", "absent", false)], "the first part that is missing");
    assert_eq!(of(&root, "kube/config/below"), [place("kube", "config", false)]);
}

#[test]
fn each_link_on_the_way_is_seen() {
    let dir = private_directory();
    let root = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir_all(root.join("mount/..2026")).unwrap();
    fs::write(root.join("mount/..2026/config"), "").unwrap();
    symlink("..2026", root.join("mount/..data")).unwrap();
    symlink("..data/config", root.join("mount/config")).unwrap();
    symlink(root.join("mount"), root.join("link")).unwrap();
    let expected = [
        place("", "link", false),
        ("mount".into(), vec!["..data".into(), "config".into()], true),
        place("mount/..2026", "config", true),
    ];
    assert_eq!(of(&root, "link/config"), expected);
    assert_eq!(of(&root, "mount/config"), expected[1..]);
}

#[test]
fn links_that_lead_nowhere_or_in_a_circle_end() {
    let dir = private_directory();
    let root = fs::canonicalize(dir.path()).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("nowhere/x", root.join("dangling")).unwrap();
    assert_eq!(of(&root, "loop"), [place("", "loop", true)]);
    assert_eq!(of(&root, "dangling"), [(String::new(), vec!["dangling".into(), "nowhere".into()], true)]);
}
