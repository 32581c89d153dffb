//! The section `access`.

use crate::{
    Config,
    tests::{HEAD, Home, stanza},
};
use credbroker_plugin::{
    ClusterInfo,
    access::{CallTarget, Principal, Verb},
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
    assert!(rule.allow.covers(Verb::Report, CallTarget::Provider("gke")));
    assert!(!rule.allow.covers(Verb::List, CallTarget::Provider("gke")));
}

#[test]
fn without_an_item_there_is_no_rule() {
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
    insta::assert_snapshot!(home.problems(), @r"
~/.config/credbroker/config.yaml:7:3: access[0]: name must be specified: a name for messages and audit records
~/.config/credbroker/config.yaml:7:11: access[0].peers: must not be empty: add `uids`, `gids`, `executables` or `listeners`
~/.config/credbroker/config.yaml:7:22: access[0].allow: verbs must be specified: some of `get`, `watch`, `report`, `list`, `login`, `admin`, `proxy`
~/.config/credbroker/config.yaml:7:22: access[0].allow: must not be empty: add `providers` or `clusterProfiles`
~/.config/credbroker/config.yaml:8:20: access[1].peers: must not be empty: add `uids`, `gids`, `executables` or `listeners`
~/.config/credbroker/config.yaml:8:28: access[1].peers.uids[0]: must be a number from 0 to 4294967294
~/.config/credbroker/config.yaml:8:33: access[1].peers.uids[1]: must be a number from 0 to 4294967294
~/.config/credbroker/config.yaml:8:37: access[1].peers.uids[2]: must be a number from 0 to 4294967294
~/.config/credbroker/config.yaml:8:49: access[1].peers.uids[3]: must be a number from 0 to 4294967294
~/.config/credbroker/config.yaml:8:76: access[1].allow.providers[0]: must be the name of a provider, in which `*` matches any text
~/.config/credbroker/config.yaml:8:99: access[1].allow.clusterProfiles[0]: must be `NAMESPACE/NAME`, in which `*` matches any text, or `*`
~/.config/credbroker/config.yaml:8:106: access[1].allow.clusterProfiles[1]: must be `NAMESPACE/NAME`, in which `*` matches any text, or `*`
~/.config/credbroker/config.yaml:8:115: access[1].allow.clusterProfiles[2]: must be `NAMESPACE/NAME`, in which `*` matches any text, or `*`
~/.config/credbroker/config.yaml:8:130: access[1].allow.verbs[0]: must be one of `get`, `watch`, `report`, `list`, `login`, `admin`, `proxy`, not `got`
~/.config/credbroker/config.yaml:9:3: access[2]: rule `a` is defined already at ~/.config/credbroker/config.yaml:8:3; rename one of them
~/.config/credbroker/config.yaml:9:46: access[2].peers.executables[0]: must be an absolute path
~/.config/credbroker/config.yaml:9:68: access[2].peers.listeners[0]: must be the name of a listener
~/.config/credbroker/config.yaml:9:110: access[2].allow.verbs: must not be empty
~/.config/credbroker/config.yaml:10:3: access[3]: peers must be specified: the processes that the rule is for
~/.config/credbroker/config.yaml:10:3: access[3]: allow must be specified: what the rule allows
~/.config/credbroker/config.yaml:10:13: access[3]: unknown key `peer`, did you mean `peers`?
");
}

#[test]
fn validate_warns_of_rules_without_an_admin_and_of_what_has_no_effect() {
    let home = rule(
        "{executables: [/no/such/file], listeners: [default, apps]}",
        r#"{providers: [gke, "g*", gkee], clusterProfiles: ["*"], verbs: [get, login]}"#,
    );
    insta::assert_snapshot!(home.warnings(), @r"
~/.config/credbroker/config.yaml:1:1: provider `gke` has `clusterInfo: Match`, but without `clusterProfiles` the broker does not know any cluster, so every caller that sends one is refused
~/.config/credbroker/config.yaml:7:3: access: no rule allows `admin`, so `credbroker refresh` and `credbroker evict` are denied to everyone, including root
~/.config/credbroker/config.yaml:8:24: access[0].peers.executables: matches only processes whose executable the broker may read: processes of the broker's user, or all processes with CAP_SYS_PTRACE. It does not protect against processes of the same user
~/.config/credbroker/config.yaml:8:62: access[0].peers.listeners[1]: no listener has the name `apps`, so this matches no process
~/.config/credbroker/config.yaml:9:34: access[0].allow.providers[2]: no provider has the name `gkee`, so this has no effect; did you mean `gke`?
~/.config/credbroker/config.yaml:9:58: access[0].allow.clusterProfiles: has no effect without `clusterProfiles` at the top of the configuration
");
    let home = rule("{uids: [0]}", "{providers: [gke], verbs: [admin]}");
    assert!(!home.warnings().contains("admin"), "{}", home.warnings());
}

#[test]
fn once_there_is_a_rule_a_plugin_that_gets_the_cluster_gets_a_known_one() {
    use ClusterInfo::{FromCaller, Match};
    let without = stanza("x");
    let cluster = without.replace("command: x", "command: x, provideClusterInfo: true");
    let providers = format!(
        "{HEAD}kubeconfigs: [~/.kube/config]\nproviders:\n- name: blind\n  {without}\n- name: default\n  {cluster}\n- name: written\n  clusterInfo: FromCaller\n  {cluster}\n- name: both\n  clusterInfo: Match\n  {without}\n"
    );
    let kubeconfig = "users:\n- name: user\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x, provideClusterInfo: true}}\n";
    let infos = |lines: &str| {
        let home = Home::new(&format!("{providers}{lines}"));
        home.write(".kube/config", kubeconfig);
        let config = home.load().unwrap().config;
        ["blind", "default", "written", "both", "user"]
            .map(|name| config.providers.find(name).unwrap().cluster_info)
    };
    assert_eq!(infos(""), [FromCaller, FromCaller, FromCaller, Match, FromCaller]);
    let rule = "access:\n- {name: r, peers: {uids: [0]}, allow: {providers: [\"*\"], verbs: [get, admin]}}\n";
    assert_eq!(infos(rule), [FromCaller, Match, FromCaller, Match, Match]);
}
