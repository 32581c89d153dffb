//! Audit records of a broker.

use std::{fs, path::Path};

use super::*;

/// The records in `path`, without what differs from run to run.
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(!text.contains("secret"), "no token is recorded");
    let records = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap();
        for name in ["time", "uid", "gid", "pid", "executable", "id", "duration_ms", "generation", "listener"]
        {
            let is_known = fields.remove(name).is_some();
            assert!(is_known || !["time"].contains(&name), "{line}");
        }
        record
    });
    records.collect()
}

#[tokio::test]
async fn decisions_and_runs_are_recorded_without_secrets() {
    let plugin = FakePlugin::builder().token("secret").expires_in(3600).build();
    let failing = FakePlugin::builder().stderr("secret").exit_code(3).build();
    let directory = credbroker_test_support::private_directory();
    let path = directory.path().join("audit.jsonl");
    let providers = [provider("a", &plugin), provider("b", &plugin), provider("failing", &failing)];
    let rules = rule(&json!({"providers": ["a", "failing"], "verbs": ["get", "watch", "list"]}));
    let config = json!({"providers": providers, "access": rules, "audit": {"file": path}});
    let broker = InProcess::with(config, &[]);
    let mut client = client(&broker).await;
    client.get_credential(request("a", None, &[])).await.unwrap();
    client.get_credential(request("a", None, &[])).await.unwrap();
    client.get_credential(request("b", None, &[])).await.unwrap_err();
    client.get_credential(request("failing", None, &[])).await.unwrap_err();
    let mut watch = client.watch_credential(watching("a")).await.unwrap().into_inner();
    watch.message().await.unwrap();
    client.list_clusters(pb::ListClustersRequest::default()).await.unwrap_err();
    let rules = rule(&json!({"providers": ["b"], "verbs": ["get"]}));
    broker.reconfigure(json!({"providers": providers, "access": rules, "audit": {"file": path}})).await;
    watch.message().await.unwrap_err();
    drop((client, watch));
    broker.stop().await;
    let lines: Vec<_> = records(&path).iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"kind":"run","outcome":"issued","provider":"a"}
    {"call":"get","kind":"decision","outcome":"allowed","reason":"own","target":"provider/a"}
    {"call":"get","kind":"decision","outcome":"allowed","reason":"own","target":"provider/a"}
    {"call":"get","kind":"decision","outcome":"denied","reason":"PEER_DENIED","target":"provider/b"}
    {"kind":"run","outcome":"failed","provider":"failing","reason":"PLUGIN_EXIT"}
    {"call":"get","kind":"decision","outcome":"failed","reason":"PLUGIN_EXIT","target":"provider/failing"}
    {"call":"watch","kind":"decision","outcome":"allowed","reason":"own","target":"provider/a"}
    {"call":"list_clusters","kind":"decision","outcome":"allowed"}
    {"call":"watch","kind":"decision","outcome":"denied","reason":"PEER_DENIED","target":"provider/a"}
    "#);
}

#[tokio::test]
async fn a_peer_without_any_right_is_recorded_too() {
    let plugin = FakePlugin::builder().token("secret").expires_in(3600).build();
    let directory = credbroker_test_support::private_directory();
    let path = directory.path().join("audit.jsonl");
    let config = json!({"providers": [provider("a", &plugin)], "access": foreign(), "audit": {"file": path}});
    let broker = InProcess::with(config, &[]);
    client(&broker).await.get_credential(request("a", None, &[])).await.unwrap_err();
    broker.stop().await;
    let lines: Vec<_> = records(&path).iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"{"call":"/credbroker.v1.CredentialBroker/GetCredential","kind":"decision","outcome":"denied","reason":"PEER_DENIED"}"#);
}

#[tokio::test]
async fn denials_over_the_limit_are_counted_and_hide_no_other_decision() {
    let plugin = FakePlugin::builder().token("secret").expires_in(3600).build();
    let directory = credbroker_test_support::private_directory();
    let path = directory.path().join("audit.jsonl");
    let providers = [provider("a", &plugin), provider("b", &plugin)];
    let rules = rule(&json!({"providers": ["a"], "verbs": ["get"]}));
    let config = json!({"providers": providers, "access": rules, "audit": {"file": path}});
    let broker = InProcess::with(config, &[]);
    let mut client = client(&broker).await;
    let denials: u64 = 500;
    for _ in 0..denials {
        client.get_credential(request("b", None, &[])).await.unwrap_err();
    }
    client.get_credential(request("a", None, &[])).await.unwrap();
    let of = |field: &str, value: &str| records(&path).iter().filter(|record| record[field] == value).count();
    let counted =
        || records(&path).iter().filter_map(|record| record["denials_not_recorded"].as_u64()).sum::<u64>();
    // Without another request.
    while of("outcome", "denied") as u64 + counted() < denials {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(of("outcome", "denied") as u64 + counted(), denials);
    assert_eq!(of("outcome", "allowed"), 1);
    let seconds = of("kind", "omitted");
    assert!(seconds > 0 && of("outcome", "denied") <= 20 * (seconds + 1));
    broker.stop().await;
}
