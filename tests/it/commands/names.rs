//! Completion of commands, flags, and names from the running broker.

use std::{path::Path, process::Command};

use credbroker_test_support::{FakePlugin, private_directory};
use serde_json::json;

use super::{PROGRAM, broker};
use crate::harness::provider;

/// What bash would offer after `words`.
fn offers(socket: &Path, words: &[&str]) -> Vec<String> {
    let output = Command::new(PROGRAM)
        .args(["--", "credbroker"])
        .args(words)
        .env_clear()
        .env("CREDBROKER_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "false")
        .env("_CLAP_IFS", "\n")
        .env("CREDBROKER_SOCKET", socket)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "a shell would print it: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn commands_offer_the_names_of_the_running_broker() {
    let plugin = FakePlugin::builder().token("t").build();
    let odd = "gke\u{202e}";
    let providers = ["gke-prod", "gke-test", "eks", odd].map(|name| provider(name, &plugin));
    let broker = broker(&json!(providers));
    for command in ["get", "refresh", "evict", "status"] {
        assert_eq!(offers(&broker.socket(), &[command, "g"]), ["gke-prod", "gke-test"], "{command}");
    }
    assert_eq!(offers(&broker.socket(), &["refresh", "x"]), [""; 0]);
    assert!(offers(&broker.socket(), &["healt"]).contains(&"healthcheck".to_owned()));
}

#[test]
fn without_a_broker_there_are_no_names_and_no_words() {
    let directory = private_directory();
    assert_eq!(offers(&directory.path().join("none.sock"), &["get", "g"]), [""; 0]);
}

#[test]
fn a_broker_that_does_not_answer_keeps_the_shell_for_a_moment_only() {
    let directory = private_directory();
    let socket = directory.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(offers(&socket, &["get", "g"]), [""; 0]);
}
