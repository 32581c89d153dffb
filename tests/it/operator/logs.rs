//! The log at its default level.

use std::process::{Command, Output};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::{Value, json};

use super::{PROGRAM, lines, parsed, until, with_message};
use crate::harness::provider;

fn start(providers: &Value) -> Broker {
    Broker::builder(PROGRAM).providers(providers).arg("--log-format").arg("json").start()
}

fn run(broker: &Broker, args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).arg("--socket").arg(broker.socket()).env_clear().output().unwrap()
}

/// The level, the provider, and the values that do not depend on the time.
fn shown(line: &Value) -> Value {
    let fields = ["level", "message", "reason", "outcome", "attempts", "still_served", "watches", "span"];
    let mut shown = json!({});
    for name in fields.into_iter().filter(|name| !line[name].is_null()) {
        shown[name] = line[name].clone();
    }
    if let Some(span) = shown.get_mut("span").and_then(Value::as_object_mut) {
        span.remove("id").expect("an id");
    }
    shown
}

#[test]
fn each_run_and_each_rotation_is_a_line_and_a_hit_is_none() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = start(&json!([provider("cloud", &plugin)]));
    for _ in 0..5 {
        assert!(run(&broker, &["get", "cloud"]).status.success());
    }
    assert!(run(&broker, &["refresh", "cloud"]).status.success());
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0));
    let lines = parsed(&log);
    let runs = with_message(&lines, "plugin run");
    assert_eq!(runs.len(), 2, "{log}");
    let rotations = with_message(&lines, "credential rotated");
    assert_eq!(rotations.len(), 1, "{log}");
    let [first, second] = [runs[0], runs[1]];
    for line in &runs {
        assert!(line["duration_ms"].is_u64() && line["queued_ms"].is_u64(), "{line}");
        assert!(line["expires"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(line["span"]["id"].is_string(), "{line}");
    }
    assert_ne!(first["generation"], second["generation"]);
    assert_eq!(rotations[0]["previous"], first["generation"]);
    assert_eq!(rotations[0]["generation"], second["generation"]);
    let seen: Vec<_> = runs.into_iter().chain(rotations).map(shown).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&seen).unwrap());
    let others: Vec<_> =
        lines.iter().filter(|line| line["span"].is_null()).map(|line| &line["message"]).collect();
    let listening = with_message(&lines, "listening on ");
    assert_eq!(listening.len(), 1, "one line for the listener");
    assert_eq!(with_message(&lines, "read the configuration")[0]["providers"], r#"["cloud"]"#);
    assert_eq!(others.len(), 4, "configuration, listener, SIGTERM and drained: {log}");
}

#[test]
fn failures_are_warnings_and_after_three_of_them_information() {
    let failing = FakePlugin::builder().stderr("no login").exit_code(3).build();
    let missing = json!({"name": "missing", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin", "interactiveMode": "Never",
    }});
    let broker = start(&json!([provider("failing", &failing), missing]));
    for _ in 0..5 {
        run(&broker, &["refresh", "failing"]);
        run(&broker, &["get", "failing"]);
    }
    for _ in 0..2 {
        run(&broker, &["get", "missing"]);
        run(&broker, &["refresh", "missing"]);
    }
    let (_, log) = broker.stop();
    let lines = parsed(&log);
    let failed = with_message(&lines, "plugin run failed");
    let of = |name: &str| {
        failed.iter().filter(|line| line["span"]["provider"] == name).copied().collect::<Vec<_>>()
    };
    let (failing, missing) = (of("failing"), of("missing"));
    assert!(failing.len() >= 5 && missing.len() >= 2, "{log}");
    for line in &failing {
        let level = if line["attempts"].as_u64().unwrap() <= 3 { "WARN" } else { "INFO" };
        assert_eq!(line["level"], level, "{line}");
        assert_eq!((&line["outcome"], &line["still_served"]), (&json!("exit"), &json!(false)), "{line}");
        assert!(
            line["retry_ms"].is_u64() && line["message"].as_str().unwrap().contains("no login"),
            "{line}"
        );
    }
    let levels: Vec<_> = missing.iter().map(|line| line["level"].as_str().unwrap()).collect();
    assert_eq!(levels[0], "WARN", "{log}");
    assert!(levels[1..].iter().all(|level| *level == "INFO"), "one warning a minute: {levels:?}");
    assert_eq!(missing[0]["outcome"], "not_found");
}

#[test]
fn a_run_that_takes_half_its_time_is_a_warning_and_one_that_a_shutdown_ends_is_not() {
    let plugin = FakePlugin::script("exec sleep 300");
    let mut slow = provider("slow", &plugin);
    slow["timeout"] = json!("2s");
    let broker = start(&json!([slow, provider("endless", &plugin)]));
    let failed = run(&broker, &["get", "slow"]);
    assert!(!failed.status.success());
    let half = lines(&broker);
    let half = with_message(&half, "the plugin has used half of its time limit");
    assert_eq!(half.len(), 1);
    assert_eq!((&half[0]["level"], &half[0]["timeout_s"]), (&json!("WARN"), &json!(2)));
    assert_eq!(half[0]["span"]["provider"], "slow");

    let waiting = Command::new(PROGRAM)
        .args(["get", "endless", "--socket"])
        .arg(broker.socket())
        .env_clear()
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("the second plugin runs", || plugin.runs() == 2);
    let (status, log) = broker.stop();
    waiting.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(0));
    let lines = parsed(&log);
    let ended: Vec<_> =
        lines.iter().filter(|line| line["span"]["provider"] == "endless").map(shown).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&ended).unwrap());
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn debug_messages_are_ours_and_not_those_of_libraries() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin)]))
        .arg("--log-format")
        .arg("json")
        .arg("-v")
        .start();
    assert!(run(&broker, &["get", "cloud"]).status.success());
    let (_, log) = broker.stop();
    let lines = parsed(&log);
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"), "{log}");
    let foreign = lines.iter().find(|line| !line["target"].as_str().unwrap().starts_with("credbroker"));
    assert_eq!(foreign, None);
}
