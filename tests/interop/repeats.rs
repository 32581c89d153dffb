//! Clients that ask often: a repeat may mean that a token was refused, and must not cost a run each time.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use crate::programs::{broker, clusterless, shim};

const EXEC_INFO: &str = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://prod"},"interactive":false}}"#;

fn setup() -> (FakePlugin, Broker) {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = Broker::builder(broker()).providers(&json!([clusterless("corp", &plugin)])).start();
    (plugin, broker)
}

/// The shim, as a child of this process.
fn ask(socket: &Path) -> Vec<u8> {
    let mut command = Command::new(shim());
    command.args(["--provider", "corp", "--socket"]).arg(socket).env("KUBERNETES_EXEC_INFO", EXEC_INFO);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// As kube-rs does: once for the configuration, once for the client, once for the first request.
#[test]
fn a_client_that_starts_its_plugin_three_times_is_one_run() {
    let (plugin, broker) = setup();
    let answers = [(); 3].map(|()| ask(&broker.socket()));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "all get the same answer");
    assert_eq!(plugin.runs(), 1);
}

#[test]
fn thirty_repeats_in_one_shell_are_one_run() {
    let (plugin, broker) = setup();
    let script = "for _ in $(seq 30); do \"$1\" --provider corp --socket \"$2\" || exit; done";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(shim()).arg(broker.socket()).env_remove("KUBERNETES_EXEC_INFO");
    let started = Instant::now();
    let output = shell.output().unwrap();
    println!("30 repeats in one shell: {:?}", started.elapsed());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 30);
    assert_eq!(plugin.runs(), 1);
}

/// Each of them looks like a rejection, and none comes when the token is old enough to be worth a run.
#[test]
fn thirty_repeats_of_one_client_are_one_run() {
    let (plugin, broker) = setup();
    let started = Instant::now();
    for _ in 0..30 {
        ask(&broker.socket());
    }
    println!("30 repeats of one client: {:?}", started.elapsed());
    // At most one more each ten seconds, on a machine that is that slow.
    let allowed = 1 + started.elapsed().as_secs() / 10;
    assert!(plugin.runs() as u64 <= allowed, "{} runs in {:?}", plugin.runs(), started.elapsed());
}
