//! What a broker that runs reads differently from one that starts.

use std::{fs, path::PathBuf};

use crate::{
    ConfigError, Loaded, load, reload,
    tests::{HEAD, Home},
};
use credbroker_plugin::Providers;

/// A kubeconfig whose users run these commands.
fn users(users: &[(&str, &str)]) -> String {
    let user = |(name, command): &(&str, &str)| {
        let exec = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";
        format!("- name: {name}\n  user: {{exec: {{command: {command}, {exec}}}}}\n")
    };
    format!("apiVersion: v1\nkind: Config\nusers:\n{}", users.iter().map(user).collect::<String>())
}

/// A home without a configuration.
fn ambient(kubeconfig: &str) -> Home {
    let home = Home(credbroker_test_support::private_directory());
    home.write(".kube/config", kubeconfig);
    home
}

fn again(home: &Home, providers: &Providers) -> Result<Loaded, ConfigError> {
    reload(None, &home.env(&[]), providers)
}

fn names(loaded: &Loaded) -> Vec<String> {
    loaded.config.providers.names()
}

#[test]
fn the_standard_places_are_followed_whether_they_exist_or_not() {
    let home = ambient(&users(&[("rel", "/bin/a")]));
    let sources = home.load().unwrap().sources;
    let path = |name: &str| home.0.path().join(name);
    let system = PathBuf::from("/etc/credbroker/config.yaml");
    let kubeconfig = path(".kube/config");
    assert_eq!(sources.followed, [path(".config/credbroker/config.yaml"), system, kubeconfig.clone()]);
    assert_eq!(sources.filled, [kubeconfig]);
}

#[test]
fn certificate_authorities_are_followed_too() {
    let cluster = "clusters:\n- name: c\n  cluster: {server: https://a, certificate-authority: ca.pem}\n";
    let context = "contexts:\n- name: x\n  context: {cluster: c, user: rel}\n";
    let home = ambient(&format!("{}{cluster}{context}", users(&[("rel", "/bin/a")])));
    let loaded = home.load().unwrap();
    assert_eq!(loaded.sources.followed.last(), Some(&home.0.path().join(".kube/ca.pem")));
}

#[test]
fn an_active_user_is_not_left_out_for_a_mistake_and_another_one_is() {
    let home = ambient(&users(&[("rel", "/bin/a"), ("dev", "\"\"")]));
    let running = home.load().unwrap();
    assert_eq!((names(&running), running.warnings.is_empty()), (vec!["rel".to_owned()], false));
    assert_eq!(names(&again(&home, &running.config.providers).unwrap()), ["rel"]);
    home.write(".kube/config", &users(&[("rel", "\"\""), ("dev", "/bin/b")]));
    assert_eq!(names(&home.load().unwrap()), ["dev"], "as a broker starts");
    let problems = again(&home, &running.config.providers).unwrap_err();
    insta::assert_snapshot!(home.shown(&problems), @"~/.kube/config:5:16: user `rel`.exec: command must be specified: the name or the path of the plugin");
}

#[test]
fn a_broker_that_runs_can_lose_its_last_users_and_one_that_starts_needs_some() {
    let home = ambient(&users(&[("rel", "/bin/a")]));
    let running = home.load().unwrap();
    home.write(".kube/config", &users(&[]));
    assert!(home.load().is_err());
    let emptied = again(&home, &running.config.providers).unwrap();
    assert_eq!((names(&emptied).len(), emptied.warnings.len()), (0, 1));
    assert_eq!(emptied.sources.lost_since(&running.sources), [""; 0].map(PathBuf::from), "it is not empty");
    fs::remove_file(home.0.path().join(".kube/config")).unwrap();
    let gone = again(&home, &running.config.providers).unwrap();
    assert_eq!(gone.sources.lost_since(&running.sources), [home.0.path().join(".kube/config")]);
}

#[test]
fn a_named_kubeconfig_may_vanish_and_the_kubeconfig_of_the_hub_may_not() {
    let home = Home::new(&format!("{HEAD}kubeconfigs: [users]\n"));
    let file = home.write(".config/credbroker/users", &users(&[("rel", "/bin/a")]));
    let running = home.load().unwrap();
    fs::remove_file(&file).unwrap();
    insta::assert_snapshot!(home.problems(), @"~/.config/credbroker/users: there is no such file");
    let without = again(&home, &running.config.providers).unwrap();
    assert_eq!((names(&without).len(), without.sources.lost_since(&running.sources)), (0, vec![file]));
    let stanza = crate::tests::stanza("/bin/a");
    home.write(
        ".config/credbroker/config.yaml",
        &format!("{HEAD}providers:\n- name: p\n  {stanza}\nclusterProfiles: {{kubeconfig: hub}}\n"),
    );
    let problems = again(&home, &running.config.providers).unwrap_err();
    assert!(home.shown(&problems).ends_with("the kubeconfig does not exist"), "{problems}");
    assert!(load(None, &home.env(&[])).is_err());
}
