mod hub;

use super::*;
use crate::{
    Config,
    tests::{HEAD, Home, stanza},
};
use credbroker_plugin::{EnvPolicy, ProfileName};

/// A config with one provider and this section.
fn with(section: &str) -> Home {
    Home::new(&format!("{HEAD}providers:\n- name: gke\n  {}\nclusterProfiles: {section}\n", stanza("x")))
}

fn read(home: &Home) -> ClusterProfiles {
    let Config { cluster_profiles, .. } = home.load().unwrap().config;
    cluster_profiles.unwrap()
}

#[test]
fn the_whole_section_is_read() {
    let home = with(
        r#"
  kubeconfig: InCluster
  namespaces: [fleet, fleet-2, fleet]
  labelSelector: "env in (prod, dev),!old"
  allowHttp: true
  prewarm:
  - clusterProfiles: ["fleet/*", "*/paris"]
    providers: [gke]
    concurrency: 7
    runsPerSecond: 9
  - {}"#,
    );
    let read = read(&home);
    assert!(read.hub.is_none());
    assert_eq!(read.namespaces, ["fleet", "fleet-2"], "once each");
    assert_eq!(read.label_selector, "env in (prod, dev),!old");
    assert_eq!(read.rules, EndpointRules { allow_http: true });
    let [first, second] = read.prewarm.as_slice() else { panic!("{:?}", read.prewarm) };
    assert_eq!((first.concurrency.get(), first.runs_per_second.get()), (7, 9));
    assert_eq!((second.concurrency.get(), second.runs_per_second.get()), (2, 5), "the defaults");
    let covered =
        |rule: &Prewarm, namespace, name, provider| rule.covers(&ProfileName::new(namespace, name), provider);
    assert!(covered(first, "fleet", "tokyo", "gke") && covered(first, "other", "paris", "gke"));
    assert!(!covered(first, "fleet", "tokyo", "eks") && !covered(first, "other", "tokyo", "gke"));
    assert!(!covered(first, "fleet-2", "tokyo", "gke") && !covered(first, "xfleet", "tokyo", "gke"));
    assert!(covered(second, "any", "thing", "eks"), "without lists it is all of them");
    assert_eq!(home.warnings(), "");
}

#[test]
fn everything_but_the_hub_has_a_default() {
    let read = read(&with("{kubeconfig: InCluster}"));
    assert_eq!((read.namespaces, &*read.label_selector, read.rules), (vec![], "", EndpointRules::default()));
    assert!(read.prewarm.is_empty());
    assert!(
        Home::new(&format!("{HEAD}providers:\n- name: p\n  {}\n", stanza("x")))
            .load()
            .unwrap()
            .config
            .cluster_profiles
            .is_none()
    );
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let home = with(
        r#"
  kubeconfig: InCluster
  context: hub
  namespace: fleet
  namespaces: [Fleet, "", -a, a-, a.b, "*", 5, ok]
  labelSelector: [a]
  allowHttp: "yes"
  prewarm:
  - clusterProfiles: ["*", "a/b/c", 5, "a/*"]
    providers: [gkee, aks, gke, 1]
    concurrency: 0
    runsPerSecond: fast
    rate: 1
  - fleet/*"#,
    );
    insta::assert_snapshot!(home.problems(), @r"
    ~/.config/credbroker/config.yaml:8:12: clusterProfiles.context: `InCluster` has no contexts; remove it
    ~/.config/credbroker/config.yaml:9:3: clusterProfiles: unknown key `namespace`, did you mean `namespaces`?
    ~/.config/credbroker/config.yaml:10:16: clusterProfiles.namespaces[0]: must be the name of a namespace; to read all namespaces, remove `namespaces`
    ~/.config/credbroker/config.yaml:10:23: clusterProfiles.namespaces[1]: must be the name of a namespace; to read all namespaces, remove `namespaces`
    ~/.config/credbroker/config.yaml:10:27: clusterProfiles.namespaces[2]: must be the name of a namespace; to read all namespaces, remove `namespaces`
    ~/.config/credbroker/config.yaml:10:31: clusterProfiles.namespaces[3]: must be the name of a namespace; to read all namespaces, remove `namespaces`
    ~/.config/credbroker/config.yaml:10:35: clusterProfiles.namespaces[4]: must be the name of a namespace; to read all namespaces, remove `namespaces`
    ~/.config/credbroker/config.yaml:10:40: clusterProfiles.namespaces[5]: must be the name of a namespace; to read all namespaces, remove `namespaces`
    ~/.config/credbroker/config.yaml:10:45: clusterProfiles.namespaces[6]: expected a string, found a number; put it in quotes
    ~/.config/credbroker/config.yaml:11:18: clusterProfiles.labelSelector: expected a string, found a list
    ~/.config/credbroker/config.yaml:12:14: clusterProfiles.allowHttp: expected a boolean, found a string
    ~/.config/credbroker/config.yaml:14:23: clusterProfiles.prewarm[0].clusterProfiles[0]: must be `NAMESPACE/NAME`, in which `*` matches any text
    ~/.config/credbroker/config.yaml:14:28: clusterProfiles.prewarm[0].clusterProfiles[1]: must be `NAMESPACE/NAME`, in which `*` matches any text
    ~/.config/credbroker/config.yaml:14:37: clusterProfiles.prewarm[0].clusterProfiles[2]: expected a string, found a number; put it in quotes
    ~/.config/credbroker/config.yaml:15:17: clusterProfiles.prewarm[0].providers[0]: `gkee` is not one of `providers`, did you mean `gke`?
    ~/.config/credbroker/config.yaml:15:23: clusterProfiles.prewarm[0].providers[1]: `aks` is not one of `providers`
    ~/.config/credbroker/config.yaml:15:33: clusterProfiles.prewarm[0].providers[3]: expected a string, found a number; put it in quotes
    ~/.config/credbroker/config.yaml:16:18: clusterProfiles.prewarm[0].concurrency: must be a whole number from 1 to 100000
    ~/.config/credbroker/config.yaml:17:20: clusterProfiles.prewarm[0].runsPerSecond: must be a whole number from 1 to 1000000
    ~/.config/credbroker/config.yaml:18:5: clusterProfiles.prewarm[0]: unknown key `rate`
    ~/.config/credbroker/config.yaml:19:5: clusterProfiles.prewarm[1]: expected a map, found a string
    ");
}

#[test]
fn lists_and_texts_of_another_shape_are_reported() {
    let table = [
        "[]",
        "InCluster",
        "{kubeconfig: [a]}",
        r#"{kubeconfig: ""}"#,
        "{kubeconfig: InCluster, namespaces: fleet, prewarm: {}}",
    ];
    insta::assert_snapshot!(table.map(|section| with(section).problems()).join("\n"), @r"
    ~/.config/credbroker/config.yaml:6:18: clusterProfiles: expected a map, found a list
    ~/.config/credbroker/config.yaml:6:18: clusterProfiles: expected a map, found a string
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: expected a string, found a list
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: must be a path, or `InCluster`
    ~/.config/credbroker/config.yaml:6:54: clusterProfiles.namespaces: expected a list, found a string
    ~/.config/credbroker/config.yaml:6:70: clusterProfiles.prewarm: expected a list, found a map
    ");
}

#[test]
fn a_namespace_is_a_label_of_dns() {
    let name = |length| format!("{{kubeconfig: InCluster, namespaces: [{}]}}", "a".repeat(length));
    assert_eq!(read(&with(&name(63))).namespaces.len(), 1);
    assert!(with(&name(64)).problems().contains("must be the name of a namespace"));
}

#[test]
fn without_a_provider_that_could_serve_profiles_the_section_is_refused() {
    let home =
        Home::new(&format!("{HEAD}kubeconfigs: [~/users]\nclusterProfiles: {{kubeconfig: InCluster}}\n"));
    home.write(
        "users",
        "users:\n- name: u\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}\n",
    );
    insta::assert_snapshot!(home.problems(), @"~/.config/credbroker/config.yaml:4:18: clusterProfiles: `providers` has no item, so no ClusterProfile can be used; add one with the name of an access provider of the profiles");
}

#[test]
fn clusters_that_must_match_and_none_that_is_known_are_warned_about() {
    let config = |fleet: &str| {
        Home::new(&format!(
            "{HEAD}providers:\n- name: p\n  clusterInfo: Match\n  {}\n- name: q\n  clusterInfo: FromCaller\n  {}\n{fleet}",
            stanza("x"),
            stanza("x")
        ))
    };
    insta::assert_snapshot!(config("").warnings(), @"~/.config/credbroker/config.yaml:1:1: provider `p` has `clusterInfo: Match`, but without `clusterProfiles` the broker does not know any cluster, so every caller that sends one is refused");
    assert_eq!(config("clusterProfiles: {kubeconfig: InCluster}\n").warnings(), "");
    insta::assert_snapshot!(Home::new(&format!("{HEAD}providers:\n- name: p\n  clusterInfo: match\n  {}\n", stanza("x"))).problems(), @"~/.config/credbroker/config.yaml:5:16: providers[0].clusterInfo: must be one of `FromCaller`, `Match`, not `match`");
}

/// A provider with these policies, in our own config and in the stock file.
fn with_policies(args: &str, env: &str) -> [Home; 2] {
    let (args_key, env_key) = ("profileSourcedCLIArgsPolicy", "profileSourcedEnvVarsPolicy");
    let ours =
        format!("{HEAD}providers:\n- name: p\n  {args_key}: {args}\n  {env_key}: {env}\n  {}\n", stanza("x"));
    let exec = r#"{"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}"#;
    let stock = format!(
        r#"{{"providers": [{{"name": "p", "execConfig": {exec}, "{args_key}": {args}, "{}": {env}}}]}}"#,
        env_key.to_uppercase()
    );
    [Home::new(&ours), Home::new(&stock)]
}

#[test]
fn the_policies_are_those_of_the_reference_library() {
    let args = [("null", false), ("\"\"", false), ("\"Ignore\"", false), ("\"Append\"", true)];
    let env = [
        ("null", EnvPolicy::Ignore),
        ("\"\"", EnvPolicy::Ignore),
        ("\"Ignore\"", EnvPolicy::Ignore),
        ("\"AppendIfNotExists\"", EnvPolicy::AppendIfNotExists),
        ("\"Replace\"", EnvPolicy::Replace),
    ];
    for (args, expected_args) in args {
        for (env, expected_env) in env {
            for home in with_policies(args, env) {
                let loaded = home.load().unwrap();
                let sourced = loaded.config.providers.find("p").unwrap().profile_sourced.unwrap();
                assert_eq!((sourced.args, sourced.env), (expected_args, expected_env), "{args} {env}");
            }
        }
    }
}

#[test]
fn another_policy_is_refused_when_the_file_is_read() {
    for home in with_policies("\"Replace\"", "\"Append\"") {
        let problems = home.problems();
        assert!(problems.contains("must be one of `Ignore`, `Append`, not `Replace`"), "{problems}");
        assert!(
            problems.contains("must be one of `Ignore`, `AppendIfNotExists`, `Replace`, not `Append`"),
            "{problems}"
        );
    }
}

#[test]
fn providers_serve_profiles_in_the_order_of_the_file() {
    let item = |name: &str| format!("- name: {name}\n  {}\n", stanza("x"));
    let home = Home::new(&format!("{HEAD}providers:\n{}{}{}", item("z"), item("a"), item("m")));
    let providers = home.load().unwrap().config.providers;
    let names: Vec<_> = providers.access.iter().map(|provider| &*provider.name).collect();
    assert_eq!(names, ["z", "a", "m"]);
}
