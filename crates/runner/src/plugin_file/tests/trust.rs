use super::super::*;

const OWN: u32 = 1000;

fn judged(owner: u32, mode: u32, is_directory: bool) -> bool {
    let found = Found { owner, mode, is_link: false, is_directory, is_in_shared: false };
    Owners { own: OWN, unmapped_root: None }.trust(&found)
}

#[test]
fn own_files_and_those_of_root_are_trusted_if_no_other_user_can_write_them() {
    for (owner, mode, is_trusted) in [
        (OWN, 0o755, true),
        (0, 0o755, true),
        (OWN, 0o775, false),
        (OWN, 0o757, false),
        (0, 0o775, false),
        (1001, 0o755, false),
        (65_534, 0o755, false),
    ] {
        assert_eq!(judged(owner, mode, false), is_trusted, "file {owner} {mode:o}");
        assert_eq!(judged(owner, mode, true), is_trusted, "directory {owner} {mode:o}");
    }
    assert!(judged(0, 0o1777, true), "a sticky directory of root's");
    assert!(!judged(OWN, 0o1777, true) && !judged(0, 0o777, true) && !judged(0, 0o1777, false));
}

#[test]
fn root_without_a_number_in_this_user_namespace_is_root() {
    let owners = Owners { own: OWN, unmapped_root: Some(65_534) };
    let found = |owner| Found { owner, mode: 0o755, is_link: false, is_directory: true, is_in_shared: false };
    assert!(owners.trust(&found(65_534)) && !owners.trust(&found(1001)));
}

#[test]
fn the_owner_of_a_link_counts_where_all_users_can_make_files() {
    let owners = Owners { own: OWN, unmapped_root: None };
    let link = |owner, is_in_shared| {
        let found = Found { owner, mode: 0o777, is_link: true, is_directory: false, is_in_shared };
        owners.trust(&found)
    };
    assert!(link(OWN, true) && link(0, true) && link(1001, false));
    assert!(!link(1001, true));
}

#[test]
fn a_file_or_directory_that_others_can_write_is_named() {
    let home = credbroker_test_support::private_directory();
    let path = home.path().join("bin/plugin");
    fs::create_dir(home.path().join("bin")).unwrap();
    fs::write(&path, "").unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let directory = path.parent().unwrap();
    for (of_directory, of_file, refused) in
        [(0o755, 0o755, None), (0o755, 0o777, Some(&*path)), (0o777, 0o755, Some(directory))]
    {
        set(directory, of_directory);
        set(&path, of_file);
        let found = distrust(&path).unwrap();
        let expected = refused.map(|path| Refusal::Writable(path.to_owned(), 0o777));
        assert_eq!(found, expected);
    }
}

#[test]
fn root_is_in_the_map_of_a_user_namespace_or_there_is_no_map() {
    assert!(maps_root("         0          0 4294967295\n") && maps_root(""));
    assert!(!maps_root("      1000       1000          1\n"));
}
