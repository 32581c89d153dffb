mod yaml;

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_file_has_one_identity_by_whichever_name_it_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir_all(root.join("dotfiles/kube")).unwrap();
    fs::create_dir_all(root.join("home/.kube")).unwrap();
    fs::write(root.join("dotfiles/kube/config"), "").unwrap();
    symlink("../../dotfiles/kube/config", root.join("home/.kube/config")).unwrap();
    symlink(root.join("home"), root.join("link")).unwrap();
    symlink(root.join("link/.kube/config"), root.join("chain")).unwrap();
    let expected = root.join("dotfiles/kube/config");
    for name in ["dotfiles/kube/config", "home/.kube/config", "link/.kube/config", "chain", "home/../chain"] {
        assert_eq!(defining_file(&root.join(name)), expected, "{name}");
    }
}

#[test]
fn a_mounted_config_map_keeps_its_identity_when_it_is_updated() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let path = root.join("config");
    symlink("..data/config", &path).unwrap();
    for version in ["..2026_01", "..2026_02"] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("config"), version).unwrap();
        symlink(version, root.join("new")).unwrap();
        fs::rename(root.join("new"), root.join("..data")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), version);
        assert_eq!(defining_file(&path), path);
    }
    symlink(&path, root.join("elsewhere")).unwrap();
    assert_eq!(defining_file(&root.join("elsewhere")), path);
}

#[test]
fn what_is_not_there_and_what_leads_nowhere_is_itself() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    for name in ["absent", "absent/config", "loop"] {
        assert_eq!(defining_file(&root.join(name)), root.join(name));
    }
    assert_eq!(defining_file(Path::new("/")), Path::new("/"));
}
