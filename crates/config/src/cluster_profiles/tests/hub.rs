//! The hub's kubeconfig.

use super::*;
use credbroker_plugin::Command;

const EXEC: &str = "{apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [--hub], interactiveMode: Never, provideClusterInfo: true, env: [{name: A, value: b}]}";

/// A config whose hub is the kubeconfig `hub/config` with this user.
fn with_user(section: &str, user: &str) -> Home {
    let home = with(section);
    let text = format!(
        r"apiVersion: v1
kind: Config
current-context: hub
clusters:
- {{name: c, cluster: {{server: https://hub, certificate-authority-data: Q0E=}}}}
- {{name: d, cluster: {{server: https://other}}}}
users:
- {{name: u, user: {user}}}
- {{name: token, user: {{token: canary}}}}
contexts:
- {{name: hub, context: {{cluster: c, user: u}}}}
- {{name: other, context: {{cluster: d, user: u}}}}
- {{name: token, context: {{cluster: c, user: token}}}}
- {{name: anonymous, context: {{cluster: c}}}}
- {{name: no-cluster, context: {{user: u}}}}
- {{name: lost, context: {{cluster: gone, user: gone}}}}
"
    );
    home.write("hub/config", &text);
    home
}

fn plugin(home: &Home) -> Option<Provider> {
    let HubKubeconfig { path, plugin, .. } = read(home).hub.unwrap();
    assert_eq!(path, home.0.path().join("hub/config"));
    plugin.map(|plugin| *plugin)
}

#[test]
fn the_plugin_of_the_user_is_run_as_any_other() {
    let home = with_user("{kubeconfig: ~/hub/config}", &format!("{{exec: {EXEC}}}"));
    let provider = plugin(&home).unwrap();
    assert_eq!(&*provider.name, HUB_PROVIDER);
    assert_eq!(provider.command, Command::Path(home.0.path().join("hub/plugin")), "below the kubeconfig");
    assert_eq!((provider.args, provider.env.len()), (vec!["--hub".to_owned()], 1));
    let clusters: Vec<_> = provider.clusters.iter().map(|cluster| &*cluster.server).collect();
    assert_eq!(clusters, ["https://hub"], "that of the context alone");
    let without = EXEC.replace("provideClusterInfo: true", "provideClusterInfo: false");
    let without = plugin(&with_user("{kubeconfig: ~/hub/config}", &format!("{{exec: {without}}}"))).unwrap();
    assert_eq!(without.clusters, provider.clusters, "known, whether the plugin gets it or not");
    assert!(provider.inherited.get("MY_A").is_some(), "the broker is the caller");
    assert!(provider.profile_sourced.is_none(), "it serves no profile");
    assert!(home.load().unwrap().config.providers.find(HUB_PROVIDER).is_err(), "a request cannot name it");
}

#[test]
fn a_context_can_be_named() {
    let user = format!("{{exec: {EXEC}}}");
    let of = |context: &str| with_user(&format!("{{kubeconfig: ~/hub/config, context: {context}}}"), &user);
    assert_eq!(plugin(&of("other")).unwrap().clusters[0].server, "https://other");
    assert_eq!(plugin(&of("''")).unwrap().clusters[0].server, "https://hub", "empty: the current one");
    for without_plugin in ["token", "anonymous"] {
        assert!(plugin(&of(without_plugin)).is_none());
    }
    let HubKubeconfig { context, .. } = read(&of("other")).hub.unwrap();
    assert_eq!(context.as_deref(), Some("other"));
}

#[test]
fn a_relative_path_is_below_the_directory_of_the_config() {
    let home = with_user("{kubeconfig: ../../hub/config}", "{token: canary}");
    let HubKubeconfig { path, .. } = read(&home).hub.unwrap();
    assert_eq!(path, home.0.path().join(".config/credbroker/../../hub/config"));
}

#[test]
fn a_context_that_leads_nowhere_is_reported() {
    let of = |context: &str| {
        with_user(&format!("{{kubeconfig: ~/hub/config, context: {context}}}"), "{token: canary}")
    };
    insta::assert_snapshot!(["none", "lost", "no-cluster"].map(|context| of(context).problems()).join("\n"), @r"
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: the kubeconfig has no context `none`
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: context `lost` names cluster `gone`, which does not exist
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: context `lost` names user `gone`, which does not exist
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: context `no-cluster` names no cluster
    ");
    let home = with("{kubeconfig: ~/hub/config}");
    home.write("hub/config", "clusters: []\n");
    insta::assert_snapshot!(home.problems(), @"~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: the kubeconfig has no current context; name one in `clusterProfiles.context`");
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_reported_with_its_place() {
    let absent = with("{kubeconfig: ~/hub/config}");
    let broken = with_user("{kubeconfig: ~/hub/config}", "{exec: {command: x, env: [canary]}}");
    let shim = with_user(
        "{kubeconfig: ~/hub/config}",
        &format!("{{exec: {}}}", EXEC.replace("./plugin", "/usr/bin/credbroker-exec")),
    );
    let legacy =
        with_user("{kubeconfig: ~/hub/config}", "{auth-provider: {name: gcp, config: {cmd-path: canary}}}");
    insta::assert_snapshot!([absent, broken, shim, legacy].map(|home| home.problems()).join("\n"), @r"
    ~/hub/config: there is no such file
    ~/hub/config:8:26: user `u`.exec: apiVersion must be specified: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`
    ~/hub/config:8:45: user `u`.exec.env[0]: expected a map, found a string
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: user `u` of the kubeconfig runs credbroker's shim, which would call this broker; name a kubeconfig with the original command
    ~/.config/credbroker/config.yaml:6:31: clusterProfiles.kubeconfig: user `u` of the kubeconfig has an `auth-provider`, which is not supported; use an exec plugin
    ");
}
