use std::{
    fs::{self, Permissions, create_dir, set_permissions},
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use credbroker_test_support::private_directory;

use super::*;

const OTHER: u32 = 3101;
const SO: &str = "do harm";

/// A file in `dir/inner`, and what is wrong with it.
fn problems(file: &Path) -> Vec<String> {
    let found = unsafe_file(file, &file.metadata().unwrap()).unwrap();
    found.iter().map(|by| by.problem(SO)).collect()
}

fn mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a shell runs the command of the message")]
fn a_file_that_others_can_write_is_not_safe_and_the_command_mends_it() {
    let dir = private_directory();
    let file = dir.path().join("a file");
    fs::write(&file, "").unwrap();
    for (of_file, is_safe) in [(0o600, true), (0o644, true), (0o666, false), (0o602, false), (0o622, false)] {
        mode(&file, of_file);
        let found = problems(&file);
        assert_eq!(found.is_empty(), is_safe, "{of_file:o}: {found:?}");
        if let [problem] = found.as_slice() {
            let command = problem.split('`').nth(1).unwrap();
            let run = std::process::Command::new("sh").args(["-c", command]).status().unwrap();
            assert!(run.success() && problems(&file).is_empty(), "{command}");
        }
    }
}

#[test]
fn a_file_of_another_user_or_writable_by_a_group_of_others_is_not_safe() {
    let dir = private_directory();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    mode(&file, 0o664);
    if chown(&file, Some(geteuid().as_raw()), Some(OTHER)).is_err() {
        println!("SKIPPED: only root can give a file to another group");
        return;
    }
    let command = format!("`chmod go-w {}`", file.display());
    assert!(matches!(problems(&file).as_slice(), [one] if one.contains(&command)), "{:?}", problems(&file));
    mode(&file, 0o644);
    assert_eq!(problems(&file), [""; 0]);
    chown(&file, Some(OTHER), None).unwrap();
    let found = problems(&file);
    assert!(
        matches!(found.as_slice(), [one] if one.contains("belongs to uid 3101, who can do harm")),
        "{found:?}"
    );
    assert!(found[0].contains(&format!("`chown 0 {}`", file.display())), "{found:?}");
}

#[test]
fn a_directory_or_a_link_on_the_way_that_others_can_change_is_not_safe() {
    let dir = private_directory();
    let root = dir.path().canonicalize().unwrap();
    let (inner, file, link) = (root.join("inner"), root.join("inner/file"), root.join("link"));
    create_dir(&inner).unwrap();
    fs::write(&file, "").unwrap();
    symlink(&file, &link).unwrap();
    mode(&file, 0o600);
    for (of_directory, is_safe) in [(0o755, true), (0o1777, true), (0o777, false), (0o757, false)] {
        mode(&inner, of_directory);
        for way in [&file, &link] {
            let found = problems(way);
            assert_eq!(found.is_empty(), is_safe, "{of_directory:o}: {found:?}");
            assert!(
                found.iter().all(|one| one.contains(&format!("`chmod go-w {}`", inner.display()))),
                "{found:?}"
            );
        }
    }
    mode(&inner, 0o755);
    if std::os::unix::fs::lchown(&link, Some(OTHER), Some(OTHER)).is_err() {
        println!("SKIPPED: only root can give a link to another user");
        return;
    }
    assert_eq!(problems(&file), [""; 0]);
    let found = problems(&link);
    assert!(matches!(found.as_slice(), [one] if one.contains("link belongs to uid 3101")), "{found:?}");
    chown(&inner, Some(OTHER), None).unwrap();
    let found = problems(&file);
    assert!(matches!(found.as_slice(), [one] if one.contains("inner belongs to uid 3101")), "{found:?}");
}

#[test]
fn a_directory_for_files_is_safe_only_if_others_cannot_make_files_in_it() {
    let dir = private_directory();
    let inner = dir.path().join("inner");
    create_dir(&inner).unwrap();
    for (of_directory, is_safe) in [(0o755, true), (0o700, true), (0o1777, false), (0o777, false)] {
        mode(&inner, of_directory);
        assert_eq!(unsafe_directory(&inner).unwrap().is_none(), is_safe, "{of_directory:o}");
    }
}

#[test]
fn a_shell_reads_the_path() {
    for (path, word) in
        [("/a/b-c_d.e", "/a/b-c_d.e"), ("/a b", "'/a b'"), ("/it's", r"'/it'\''s'"), ("/$x", "'/$x'")]
    {
        assert_eq!(shell_word(Path::new(path)), word);
    }
}
