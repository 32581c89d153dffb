mod issuers;
mod policy;
mod stanza;

use super::*;
use crate::tests::{Home, provider};
use credbroker_plugin::Interactive;

#[test]
fn the_file_is_read_as_it_is() {
    let home = Home::new(
        r#"{"Providers": [{
  "name": "secretreader", "future": 1, "profileSourcedEnvVarsPolicy": "AppendIfNotExists",
  "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "COMMAND": "./bin/secretreader", "provideClusterInfo": true}
}]}"#,
    );
    let loaded = home.load().unwrap();
    let provider = provider(&loaded);
    assert_eq!(provider.command, Command::Path(home.0.path().join(".config/credbroker/bin/secretreader")));
    assert!(provider.provide_cluster_info && provider.interactive == Interactive::Never);
    assert!(provider.profile_env.matches("ANY"), "its policies have no list of names");
    assert_eq!(*provider.inherited, home.env(&[]), "a stock provider has the broker's whole environment");
    insta::assert_snapshot!(home.warnings(), @r"
~/.config/credbroker/config.yaml:2:27: providers[0]: unknown key `future`, which is ignored
");
    let sourced = ProfileSourced { args: false, env: EnvPolicy::AppendIfNotExists };
    assert_eq!(provider.profile_sourced, Some(sourced));
}

/// It is the remedy of `IDENTITY_CONFLICT`.
#[test]
fn the_file_can_have_caller_env() {
    let load = |caller_env: &str| {
        let exec =
            r#""execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}"#;
        let home = Home::new(&format!(r#"{{"providers": [{{"name": "p", {caller_env} {exec}}}]}}"#));
        let provider = provider(&home.load().unwrap()).clone();
        assert_eq!(home.warnings(), "");
        (provider.caller_env, provider.refuses_other_identities)
    };
    assert_eq!(load(""), (Globs::default(), true));
    assert_eq!(load(r#""callerEnv": ["AWS_PROFILE"],"#), (Globs::new(["AWS_PROFILE"]), true));
    assert_eq!(load(r#""callerEnv": [],"#), (Globs::default(), false));
}

#[test]
fn the_file_is_checked() {
    let table = [
        r#"{"providers": [{"name": "p"}]}"#,
        r#"{"providers": [{"execConfig": {"apiVersion": "client.authentication.k8s.io/v9"}}]}"#,
        r#"{"providers": [{"name": "p", "profileSourcedCLIArgsPolicy": "append", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}}]}"#,
        r#"{"providers": []} trailing"#,
    ];
    insta::assert_snapshot!(table.map(|text| Home::new(text).problems()).join("\n"), @r"
~/.config/credbroker/config.yaml:1:16: providers[0]: execConfig must be specified: the `exec` stanza of a kubeconfig
~/.config/credbroker/config.yaml:1:16: providers[0]: name must be specified
~/.config/credbroker/config.yaml:1:31: providers[0].execConfig: command must be specified: the name or the path of the plugin
~/.config/credbroker/config.yaml:1:46: providers[0].execConfig.apiVersion: must be one of `client.authentication.k8s.io/v1`, `client.authentication.k8s.io/v1beta1`
~/.config/credbroker/config.yaml:1:61: providers[0].profileSourcedCLIArgsPolicy: must be one of `Ignore`, `Append`, not `append`
~/.config/credbroker/config.yaml:1:19: expected the end of the document, found more text
");
    for empty in ["{}", "null", r#"{"providers": null}"#] {
        assert_eq!(Home::new(empty).warnings(), "~/.config/credbroker/config.yaml: names no provider");
    }
}

fn names(pass_env: &[&str], caller_env: &[&str]) -> Vec<String> {
    unlisted(pass_env, caller_env, false)
}

fn unlisted(pass_env: &[&str], caller_env: &[&str], are_of_kubeconfig: bool) -> Vec<String> {
    let broker = [
        "SCW_PROFILE",
        "GITHUB_TOKEN",
        "ACME_ACCOUNT_ID",
        "my_context",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "CREDBROKER_TOKEN",
        "EDITOR",
        "PATH",
    ];
    let broker: Environment =
        broker.map(|name| (name, "x")).into_iter().chain([("EMPTY_TOKEN", "")]).collect();
    let (pass_env, caller_env) = (Globs::new(pass_env), Globs::new(caller_env));
    Variables { broker: &broker, pass_env, caller_env, are_of_kubeconfig }.unlisted()
}

#[test]
fn what_may_select_an_identity_and_reaches_a_plugin_is_named() {
    let all = ["ACME_ACCOUNT_ID", "GITHUB_TOKEN", "SCW_PROFILE", "my_context"];
    assert_eq!(names(&["*"], &["AWS_*"]), all);
    assert_eq!(names(&["*"], &["SCW_PROFILE", "GITHUB_TOKEN"]), ["ACME_ACCOUNT_ID", "my_context"]);
    assert_eq!(names(&["SCW_*"], &[]), ["SCW_PROFILE"]);
    assert_eq!(names(&["SCW_PROFILE", "AWS_*"], &[]), [""; 0], "it is named, or on the list");
    assert_eq!(names(&[], &[]), [""; 0]);
    let of_kubeconfig = unlisted(&["*"], &["AWS_*"], true);
    assert_eq!(of_kubeconfig, ["GITHUB_TOKEN", "my_context"], "each account is that of the caller");
}
