//! What the broker reports to the service manager that started it.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use credbroker_test_support::{Broker, FakePlugin, private_file};
use serde_json::json;

use crate::programs;

#[test]
fn systemd_hears_when_the_broker_is_ready_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let plugin = FakePlugin::builder().token("plain").build();
    let broker = Broker::builder(programs::broker())
        .providers(&json!([{"name": "corp", "execConfig": plugin.exec_stanza()}]))
        .env("NOTIFY_SOCKET", &path)
        .start();
    wait_for(&notify, "READY=1");
    let (status, log) = broker.stop();
    assert!(status.success(), "{status}: {log}");
    wait_for(&notify, "STOPPING=1");
}

#[track_caller]
fn wait_for(notify: &UnixDatagram, state: &str) {
    let mut message = [0; 4096];
    loop {
        let length = notify.recv(&mut message).unwrap_or_else(|error| panic!("no {state}: {error}"));
        if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == state) {
            return;
        }
    }
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    let plugin = FakePlugin::builder().token("plain").build();
    let text = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [{"name": "corp", "execConfig": plugin.exec_stanza()}]});
    private_file(&config, &text.to_string());
    // A test chooses only the number of standard input, and the shell makes it the descriptor that systemd passes first.
    let (passed, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", r#"export LISTEN_PID=$$; exec "$0" serve --config "$1" 3<&0"#]);
    command.arg(programs::broker()).arg(&config).env_clear().env("LISTEN_FDS", "1");
    let output = command.stdin(std::os::fd::OwnedFd::from(passed)).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("does not listen"), "{stderr}");
}
