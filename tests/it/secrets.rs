//! What must never be seen.

use std::process::Command;

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// With everything logged that there is, by us and by every library below.
#[test]
fn no_log_at_any_level_shows_a_secret() {
    let server = ApiServer::start(Accepts::Either);
    let (certificate, key) = server.issue_client_certificate("someone", std::time::Duration::from_secs(3600));
    let plugin =
        FakePlugin::builder().token("c4n4ry-token").pair(&certificate, &key).stderr("c4n4ry-stderr").build();
    let failing = FakePlugin::script("echo c4n4ry-stdout; exit 1");
    let provider = |name, plugin: &FakePlugin| {
        json!({
            "name": name,
            "execConfig": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": plugin.path(),
                "args": ["c4n4ry-arg"],
                "env": [{"name": "SECRET", "value": "c4n4ry-env"}],
                "interactiveMode": "Never",
            },
            "callerEnv": ["AWS_*"],
        })
    };
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin), provider("failing", &failing)]))
        .env("RUST_LOG", "trace")
        .start();
    for name in ["cloud", "cloud", "failing", "unknown"] {
        Command::new(PROGRAM)
            .args(["shim", "--provider", name, "--socket"])
            .arg(broker.socket())
            .env_clear()
            .env("AWS_PROFILE", "c4n4ry-caller")
            .output()
            .unwrap();
    }
    let (_, log) = broker.stop();
    assert!(log.contains("TRACE"), "everything was logged");
    let shown: Vec<_> = log.lines().filter(|line| line.contains("c4n4ry")).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
    let body = key.lines().nth(1).unwrap();
    assert!(!log.contains(body), "the private key");
}
