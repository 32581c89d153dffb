use std::os::unix::fs::{PermissionsExt as _, symlink};

use credbroker_test_support::{private_directory, private_file};

use super::*;
use crate::{Loaded, load};
use credbroker_plugin::Definition;

const EXEC: &str = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";

/// What a broker with both files reads: commands and definitions.
fn definitions(dir: &Path, own: &str, moved: &str) -> Result<Vec<(String, Definition)>, String> {
    private_file(&dir.join("own"), own);
    if !dir.join("moved").exists() {
        private_file(&dir.join("moved"), moved);
    }
    private_file(
        &dir.join("config.yaml"),
        "{apiVersion: credbroker.io/v1alpha1, kind: BrokerConfig, kubeconfigs: [moved, own]}",
    );
    let Loaded { config, .. } =
        load(Some(&dir.join("config.yaml")), &Environment::default()).map_err(|error| error.to_string())?;
    let providers = config.providers.iter();
    Ok(providers.map(|found| (found.command.to_string(), found.definition.clone().unwrap())).collect())
}

fn user(command: &str) -> String {
    format!("users: [{{name: u, user: {{exec: {{{EXEC}, command: {command}}}}}}}]\n")
}

fn moved(dir: &Path) -> String {
    let origin = dir.join("own").display().to_string();
    format!(
        "extensions: [{{name: credbroker.io/injected, extension: {{origin: \"{origin}\"}}}}]\n{}",
        user("/moved")
    )
}

#[test]
fn a_moved_definition_keeps_its_identity_and_gives_way_to_one_in_its_own_file() {
    let dir = private_directory();
    let dir = fs::canonicalize(dir.path()).unwrap();
    let definition = Definition::new(dir.join("own"), "u");
    let served = definitions(&dir, &user("/bin/credbroker-exec"), &moved(&dir)).unwrap();
    assert_eq!(served, [("/moved".to_owned(), definition.clone())]);
    let served = definitions(&dir, &user("/newer"), &moved(&dir)).unwrap();
    assert_eq!(served, [("/newer".to_owned(), definition)]);
}

#[test]
fn a_file_that_others_can_write_cannot_define_the_users_of_another() {
    let dir = private_directory();
    let dir = fs::canonicalize(dir.path()).unwrap();
    private_file(&dir.join("moved"), &moved(&dir));
    fs::set_permissions(dir.join("moved"), fs::Permissions::from_mode(0o606)).unwrap();
    let problem = definitions(&dir, "users: []", "").unwrap_err();
    assert!(problem.contains("users other than its owner can write it"), "{problem}");
}

#[test]
fn an_origin_that_is_not_a_path_is_a_problem() {
    let dir = private_directory();
    let text = moved(dir.path()).replace("origin: \"/", "origin: \"");
    let problem = definitions(dir.path(), "users: []", &text).unwrap_err();
    assert!(problem.contains("does not name the file that the users are from"), "{problem}");
}

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
