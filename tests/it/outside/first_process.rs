//! The broker as the first process of a PID namespace, as in a container: it alone can reap what plugins leave behind.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::Command,
    time::{Duration, Instant},
};

use credbroker_client::{Client, Socket, admin::Selector};
use credbroker_test_support::{Broker, FakePlugin, private_directory, private_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{AGES, children, descriptors, memory::settled, until};
use crate::harness::reference;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const ANSWER: &str =
    r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
/// Keys of each provider. One refresh runs its plugin for each of them.
const KEYS: usize = 25;
/// KiB that a broker may have more after all runs.
const MORE: u64 = 10 << 10;

/// How many runs: `CREDBROKER_RUNS`, or few.
fn wanted() -> usize {
    std::env::var("CREDBROKER_RUNS").map_or(500, |runs| runs.parse().expect("CREDBROKER_RUNS is a number"))
}

/// Waits until `pid` has neither a child nor a zombie, and shows what is left and what each waits for.
fn assert_none_is_left(pid: u32) {
    let deadline = Instant::now() + AGES;
    while !children(pid).is_empty() {
        let show = |child: u32| {
            let read = |file| fs::read_to_string(format!("/proc/{child}/{file}")).unwrap_or_default();
            format!("{} {} {}", read("cmdline").replace('\0', " "), read("wchan"), read("stat"))
        };
        let left = || children(pid).into_iter().map(show).collect::<Vec<_>>().join("\n");
        assert!(Instant::now() < deadline, "left below {pid}:\n{}", left());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn the_first_process_of_a_container_keeps_no_zombie() {
    let probe = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("SKIPPED: a PID namespace needs root and unshare(1)");
        return;
    }
    let home = private_directory();
    let (answer, daemon) = (home.path().join("answer"), home.path().join("daemon"));
    private_file(&answer, ANSWER);
    // Its daemon and the child of its daemon end after it.
    let script =
        "#!/bin/sh\n(setsid sh -c 'sleep 0.1 & exec sleep 0.05' >/dev/null 2>&1 &)\nexec cat \"$1\"\n";
    private_file(&daemon, script);
    fs::set_permissions(&daemon, fs::Permissions::from_mode(0o700)).unwrap();
    let provider = |name: &str, command: &str, sandbox: &str| {
        let stanza = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": [answer],
            "interactiveMode": "Never",
        });
        json!({"name": name, "issuer": "local", "callerEnv": ["KEY"], "sandbox": sandbox, "execConfig": stanza})
    };
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "limits": {"pluginRuns": 8},
        "issuers": [{"name": "local", "runsPerSecond": 100_000, "concurrency": 8}],
        "providers": [
            provider("plain", "/bin/cat", "Strict"),
            provider("daemon", daemon.to_str().unwrap(), "Compatible"),
        ],
    });
    let inside = FakePlugin::script(&format!(
        "unshare --pid --fork --mount-proc --kill-child {PROGRAM} \"$@\" & trap \"kill -KILL $!\" TERM; wait"
    ));
    let outer = Broker::builder(inside.path()).config(&config.to_string()).start();
    let pid = children(children(outer.pid())[0])[0];
    assert!(fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("\t1\n"), "it is the first");

    let client = Client::connect(&Socket::at(outer.socket())).await.unwrap();
    for key in 0..KEYS {
        for provider in ["plain", "daemon"] {
            let reference = reference(provider, None, &[("KEY", &key.to_string())]);
            client.credential(&reference).await.unwrap();
        }
    }
    assert_none_is_left(pid);
    let (memory, files) = (settled(pid), descriptors(pid));
    let mut runs = 2 * KEYS;
    while runs < wanted() {
        for provider in ["plain", "daemon"] {
            runs += client.admin().refresh(&Selector::Provider(provider.into())).await.unwrap() as usize;
        }
        assert_none_is_left(pid);
    }
    let states = client.admin().credentials(&Selector::All).await.unwrap();
    assert_eq!(states.len(), 2 * KEYS);
    assert!(states.iter().all(|state| state.last_failure.is_none()), "{states:?}");
    until("no file is left open", || descriptors(pid) <= files);
    let after = settled(pid);
    println!("{runs} runs: {memory} KiB before, {after} after");
    assert!(after <= memory + MORE, "{memory} KiB before, {after} after");

    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    until("it has ended", || children(outer.pid()).is_empty());
    let (ended, log) = outer.stop();
    assert_eq!(ended.code(), Some(0), "{log}");
}
