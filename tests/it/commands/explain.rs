//! `credbroker explain`.

use std::process::Output;

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::{Value, json};

use super::{PROGRAM, broker, stdout};
use crate::harness::provider;

/// Runs a command for `broker` with these variables.
fn run(broker: &Broker, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = std::process::Command::new(PROGRAM);
    command.args(args).env_clear().env("CREDBROKER_SOCKET", broker.socket());
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Two credentials of `eks`, for two profiles of AWS.
fn two() -> (Broker, FakePlugin) {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let mut eks = provider("eks", &plugin);
    eks["callerEnv"] = json!(["AWS_PROFILE"]);
    eks["execConfig"]["env"] = json!([{"name": "SECRET", "value": "c4n4ry"}]);
    let broker = broker(&json!([eks]));
    for profile in ["prod", "test"] {
        assert!(run(&broker, &["get", "eks"], &[("AWS_PROFILE", profile)]).status.success());
    }
    (broker, plugin)
}

#[test]
fn it_marks_what_differs_and_no_value_but_the_account_comes_from_the_broker() {
    let (broker, plugin) = two();
    let text = stdout(&run(&broker, &["explain", "eks"], &[("AWS_PROFILE", "test")]));
    let marked: Vec<_> = text.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!(marked.len(), 2, "one in each credential: {text}");
    for line in marked {
        assert!(line.contains("variable AWS_PROFILE") && line.contains("callerEnv"), "{text}");
    }
    assert!(text.contains("in the part marked with *") && text.contains("variable SECRET"), "{text}");
    assert!(text.contains("the expirationTimestamp that the plugin printed"), "{text}");
    assert!(text.contains("the credential is due for refresh"), "{text}");
    assert!(!text.contains("c4n4ry"), "{text}");
    for account in ["  account   * AWS_PROFILE=test\n", "  account   AWS_PROFILE=prod\n"] {
        assert_eq!(text.matches(account).count(), 1, "{text}");
    }

    let json = stdout(&run(&broker, &["explain", "eks", "-o", "json"], &[]));
    let document: Value = serde_json::from_str(&json).unwrap();
    let first = &document["credentials"][0];
    let differing: Vec<_> =
        first["keyParts"].as_array().unwrap().iter().filter(|part| part["differs"] == true).collect();
    assert_eq!(differing.len(), 1);
    assert_eq!(
        (&differing[0]["name"], &differing[0]["origin"]),
        (&json!("AWS_PROFILE"), &json!("callerEnv"))
    );
    assert_eq!(first["lifetime"]["bound"], "expirationTimestamp");
    assert_eq!(first["nextRun"]["cause"], "refreshPoint");
    assert!(!json.contains("c4n4ry"), "{json}");
    assert_eq!(plugin.runs(), 2, "to explain runs nothing");
}

#[test]
fn a_provider_without_a_credential_is_not_an_error_and_an_unknown_one_is() {
    let (broker, _plugin) = two();
    assert!(run(&broker, &["evict", "eks"], &[]).status.success());
    let output = run(&broker, &["explain", "eks"], &[]);
    assert_eq!(
        stdout(&output),
        "the broker holds no credential of eks; the first request runs the plugin\n",
        "{output:?}"
    );
    let output = run(&broker, &["explain", "aks"], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(super::stderr(&output).contains("UNKNOWN_PROVIDER"), "{output:?}");
}
