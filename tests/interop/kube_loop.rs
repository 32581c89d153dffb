//! `tests/interop/programs/kube_loop.rs`: a kube client of a real broker, through certificate rotations.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin};
use serde_json::json;

use crate::programs::{broker, clusterless, refresh};

/// For what has to come.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_kube_client_follows_certificates_and_tokens_without_a_failed_request() {
    let example = broker().with_file_name("examples/kube_loop");
    assert!(
        example.is_file(),
        "no {}; build it with: cargo build --package credbroker-kube --examples",
        example.display()
    );
    let server = ApiServer::start(Accepts::Either);
    let pair = |name: &str| server.issue_client_certificate(name, Duration::from_secs(3600));
    let with_pair = |name: &str| {
        let (certificate, key) = pair(name);
        FakePlugin::builder().pair(&certificate, &key).expires_in(3600)
    };
    server.accept_token("a-token");
    let plugin = with_pair("first").build();
    let broker = Broker::builder(broker()).providers(&json!([clusterless("fleet", &plugin)])).start();
    let directory = tempfile::tempdir().unwrap();
    let authorities = directory.path().join("ca.pem");
    std::fs::write(&authorities, server.ca_pem()).unwrap();

    let mut command = Command::new(example);
    command.args(["--provider", "fleet", "--server", &server.url(), "--ca"]).arg(&authorities);
    command.arg("--socket").arg(broker.socket()).args([
        "--interval-ms",
        "20",
        "--seconds",
        "6",
        "--watch-pods",
    ]);
    let child = command.env_clear().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    until(|| server.seen_certificates().iter().any(|name| name == "first"));
    for name in ["second", "third"] {
        plugin.becomes(&with_pair(name));
        refresh(&broker.socket(), "fleet");
        until(|| server.seen_certificates().iter().any(|seen| seen == name));
    }
    plugin.becomes(&FakePlugin::builder().token("a-token").expires_in(3600));
    refresh(&broker.socket(), "fleet");
    until(|| server.seen_tokens().iter().any(|seen| seen == "a-token"));

    let output = child.wait_with_output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = said.lines().last().unwrap_or_default();
    assert!(output.status.success(), "{said}{complained}");
    let count = |name: &str| {
        let field = last.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        field.and_then(|count| count.parse::<u32>().ok()).unwrap_or_else(|| panic!("{name} in {last:?}"))
    };
    assert!(count("requests") > 100 && count("ok") == count("requests"), "{said}{complained}");
    assert_eq!((count("unauthorized"), count("errors")), (0, 0), "{said}{complained}");
    assert_eq!(plugin.runs(), 4);
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}
