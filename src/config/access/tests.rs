//! The section `access`.

use crate::{
    access::{Principal, Target, Verb},
    config::{
        Config,
        tests::{HEAD, Home, stanza},
    },
    plugin::ClusterInfo,
};

/// A configuration with a provider `gke` that gets the cluster, and these lines.
fn with(lines: &str) -> Home {
    let cluster = stanza("x").replace("command: x", "command: x, provideClusterInfo: true");
    Home::new(&format!("{HEAD}providers:\n- name: gke\n  {cluster}\n{lines}"))
}

/// A configuration whose only rule has these peers and allows this.
fn rule(peers: &str, allow: &str) -> Home {
    with(&format!("access:\n- name: r\n  peers: {peers}\n  allow: {allow}\n"))
}

fn config(home: &Home) -> Config {
    home.load().unwrap().config
}

#[test]
fn a_rule_is_read_as_it_is_written() {
    let home = rule(
        "{uids: [0, 65532], gids: [], listeners: [apps]}",
        "{providers: [gke], clusterProfiles: [\"fleet/*\"], verbs: [get, watch, report]}",
    );
    let [rule] = &config(&home).access[..] else { panic!("one rule") };
    assert_eq!(&*rule.name, "r");
    assert_eq!(
        (&rule.peers.uids[..], &rule.peers.listeners[..]),
        (&[0, 65532][..], &["apps".to_owned()][..])
    );
    let peer = Principal { uid: Some(65532), listener: "apps".into(), ..Principal::default() };
    assert!(rule.peers.include(&peer));
    assert!(rule.allow.covers(Verb::Report, Target::Provider("gke")));
    assert!(!rule.allow.covers(Verb::List, Target::Provider("gke")));
}

#[test]
fn an_empty_list_and_no_list_are_no_rule() {
    for lines in ["", "access: []\n", "access:\n"] {
        assert!(config(&with(lines)).access.is_empty(), "{lines}");
    }
}

#[test]
fn what_a_rule_lacks_or_has_wrong_is_a_problem() {
    let home = with(
        r#"access:
- {peers: {}, allow: {}}
- {name: a, peers: {uids: ["0", -1, 4294967295, 1.5]}, allow: {providers: [""], clusterProfiles: [fleet, "a/b/c", "/x"], verbs: [got]}}
- {name: a, peers: {uids: [1], executables: [kubectl], listeners: ["a b"]}, allow: {providers: [gke], verbs: []}}
- {name: b, peer: {uids: [1]}}
"#,
    );
    insta::assert_snapshot!(home.problems(), @"");
}

#[test]
fn validate_warns_of_rules_without_an_admin_and_of_what_has_no_effect() {
    let home = rule(
        "{executables: [/no/such/file]}",
        r#"{providers: [gke, "g*", gkee], clusterProfiles: ["*"], verbs: [get, login]}"#,
    );
    insta::assert_snapshot!(home.warnings(), @"");
    let home = rule("{uids: [0]}", "{providers: [gke], verbs: [admin]}");
    assert!(!home.warnings().contains("admin"), "{}", home.warnings());
}

#[test]
fn once_there_is_a_rule_a_plugin_that_gets_the_cluster_gets_a_known_one() {
    let without = stanza("x");
    let cluster = without.replace("command: x", "command: x, provideClusterInfo: true");
    let providers = format!(
        "{HEAD}kubeconfigs: [~/.kube/config]\nproviders:\n- name: blind\n  {without}\n- name: default\n  {cluster}\n- name: written\n  clusterInfo: fromCaller\n  {cluster}\n- name: both\n  clusterInfo: match\n  {without}\n"
    );
    let kubeconfig = "users:\n- name: user\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x, provideClusterInfo: true}}\n";
    let infos = |lines: &str| {
        let home = Home::new(&format!("{providers}{lines}"));
        home.write(".kube/config", kubeconfig);
        let config = home.load().unwrap().config;
        ["blind", "default", "written", "both", "user"]
            .map(|name| config.providers.find(name).unwrap().cluster_info)
    };
    use ClusterInfo::{FromCaller, Match};
    assert_eq!(infos(""), [FromCaller, FromCaller, FromCaller, Match, FromCaller]);
    let rule = "access:\n- {name: r, peers: {uids: [0]}, allow: {providers: [\"*\"], verbs: [get, admin]}}\n";
    assert_eq!(infos(rule), [FromCaller, Match, FromCaller, Match, Match]);
}
