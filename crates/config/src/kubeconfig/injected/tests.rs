use std::os::unix::fs::PermissionsExt as _;

use credbroker_test_support::{private_directory, private_file};

use crate as config;
use crate::Loaded;
use credbroker_plugin::{Definition, Environment};

const EXEC: &str = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";

/// What a broker with both files reads: commands and definitions.
fn read(dir: &std::path::Path, own: &str, moved: &str) -> Result<Vec<(String, Definition)>, String> {
    private_file(&dir.join("own"), own);
    if !dir.join("moved").exists() {
        private_file(&dir.join("moved"), moved);
    }
    private_file(
        &dir.join("config.yaml"),
        "{apiVersion: credbroker.io/v1alpha1, kind: BrokerConfig, kubeconfigs: [moved, own]}",
    );
    let Loaded { config, .. } = config::load(Some(&dir.join("config.yaml")), &Environment::default())
        .map_err(|error| error.to_string())?;
    let providers = config.providers.iter();
    Ok(providers.map(|found| (found.command.to_string(), found.definition.clone().unwrap())).collect())
}

fn user(command: &str) -> String {
    format!("users: [{{name: u, user: {{exec: {{{EXEC}, command: {command}}}}}}}]\n")
}

fn moved(dir: &std::path::Path) -> String {
    let origin = dir.join("own").display().to_string();
    format!(
        "extensions: [{{name: credbroker.io/injected, extension: {{origin: \"{origin}\"}}}}]\n{}",
        user("/moved")
    )
}

#[test]
fn a_moved_definition_keeps_its_identity_and_gives_way_to_one_in_its_own_file() {
    let dir = private_directory();
    let dir = std::fs::canonicalize(dir.path()).unwrap();
    let definition = Definition::new(dir.join("own"), "u");
    let served = read(&dir, &user("/bin/credbroker-exec"), &moved(&dir)).unwrap();
    assert_eq!(served, [("/moved".to_owned(), definition.clone())]);
    let served = read(&dir, &user("/newer"), &moved(&dir)).unwrap();
    assert_eq!(served, [("/newer".to_owned(), definition)]);
}

#[test]
fn a_file_that_others_can_write_cannot_define_the_users_of_another() {
    let dir = private_directory();
    let dir = std::fs::canonicalize(dir.path()).unwrap();
    private_file(&dir.join("moved"), &moved(&dir));
    std::fs::set_permissions(dir.join("moved"), std::fs::Permissions::from_mode(0o606)).unwrap();
    let problem = read(&dir, "users: []", "").unwrap_err();
    assert!(problem.contains("users other than its owner can write it"), "{problem}");
}

#[test]
fn an_origin_that_is_not_a_path_is_a_problem() {
    let dir = private_directory();
    let text = moved(dir.path()).replace("origin: \"/", "origin: \"");
    let problem = read(dir.path(), "users: []", &text).unwrap_err();
    assert!(problem.contains("does not name the file that the users are from"), "{problem}");
}
