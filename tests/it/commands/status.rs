//! `credbroker status`.

use credbroker_test_support::{Broker, FakePlugin, Terminal};
use serde_json::{Value, json};

use super::{PROGRAM, broker, run, stderr, stdout};
use crate::harness::provider;

#[test]
fn every_provider_is_listed_before_its_first_request() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = broker(&json!([provider("gke", &plugin), provider("eks", &plugin)]));
    assert!(run(&broker, &["get", "gke"]).status.success());
    let output = run(&broker, &["status", "--exit-code"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    let state = |name: &str| {
        let row = text.lines().find(|line| line.starts_with(name)).expect("a row");
        row.split_whitespace().nth(2).map(str::to_owned)
    };
    assert_eq!([state("gke"), state("eks")], [Some("valid".to_owned()), Some("idle".to_owned())], "{text}");
    assert!(text.starts_with(&format!("credbroker {}", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains(&format!("socket  {}", broker.socket().display())), "{text}");
    let only = stdout(&run(&broker, &["status", "eks"]));
    assert!(only.contains("eks") && !only.contains("gke"), "{only}");
}

#[test]
fn a_plugin_that_is_not_installed_is_a_failure() {
    let plugin = FakePlugin::builder().token("t").build();
    let mut missing = provider("missing", &plugin);
    missing["execConfig"]["command"] = json!("/no/such/plugin");
    let broker = broker(&json!([missing]));
    // A request looks up the file; before, the first look-up may not have ended.
    assert!(!run(&broker, &["get", "missing"]).status.success());
    let output = run(&broker, &["status", "--exit-code"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("PLUGIN_NOT_FOUND"), "{output:?}");
    assert!(run(&broker, &["status"]).status.success(), "the code is for those who want it");
    let document: Value = serde_json::from_str(&stdout(&run(&broker, &["status", "-o", "json"]))).unwrap();
    assert_eq!(document["providers"][0]["name"], "missing");
    assert!(
        document["broker"]["startTime"].as_str().unwrap().len() == "2026-11-22T10:00:00Z".len(),
        "{document}"
    );
}

/// `status --watch` with its standard output on the terminal.
fn watch(broker: &Broker) -> Terminal {
    let (script, socket) =
        (format!("stty rows 24 cols 80; exec {PROGRAM} status --watch >/dev/tty"), broker.socket());
    let variables = [("CREDBROKER_SOCKET", socket.as_os_str()), ("TERM", "xterm".as_ref())];
    Terminal::start("sh", ["-c", &script], variables)
}

#[test]
fn the_view_follows_the_broker_and_restores_the_terminal() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = broker(&json!([provider("gke", &plugin)]));
    let mut terminal = watch(&broker);
    terminal.wait_for("idle");
    assert!(run(&broker, &["get", "gke"]).status.success());
    terminal.wait_for("valid");
    terminal.wait_for("█");
    terminal.interrupt();
    let (status, _, shown) = terminal.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(shown.contains("\u{1b}[?1049h") && shown.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{shown:?}");
}

#[test]
fn the_view_says_that_the_broker_is_gone() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = broker(&json!([provider("gke", &plugin)]));
    let mut terminal = watch(&broker);
    terminal.wait_for("idle");
    drop(broker.stop());
    terminal.wait_for("no answer from the broker");
    terminal.interrupt();
    assert_eq!(terminal.end().0.code(), Some(0));
}

#[test]
fn the_view_needs_a_terminal() {
    let plugin = FakePlugin::builder().token("t").build();
    let output = run(&broker(&json!([provider("gke", &plugin)])), &["status", "--watch"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("needs a terminal"), "{output:?}");
}
