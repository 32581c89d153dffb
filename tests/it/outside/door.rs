//! What one permitted process can take from others: connections, keys, file descriptors.

use std::{
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
};

use credbroker_client::{Client, Error, Socket};
use credbroker_proto::Reason;
use credbroker_test_support::{Broker, BrokerBuilder, FakePlugin, private_directory, private_file};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tonic_health::pb::HealthCheckRequest;

use super::{memory::settled, raw::Raw, until};
use crate::harness::{provider, reference, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// What connections without a call may cost the broker in KiB, and closing them: 256 of one process, and some that end.
const ALLOWED: u64 = 300 * 40;
/// The user of the other process.
const OTHER: u32 = 61_001;

/// A broker of the providers `cloud` and `other`.
fn broker(program: impl AsRef<Path>, limits: &Value) -> (Broker, [FakePlugin; 2]) {
    let plugins = [(), ()].map(|()| FakePlugin::builder().token("t").expires_in(3600).build());
    (configured(Broker::builder(program), &plugins, limits).start(), plugins)
}

fn configured(builder: BrokerBuilder, plugins: &[FakePlugin; 2], limits: &Value) -> BrokerBuilder {
    let mut cloud = provider("cloud", &plugins[0]);
    cloud["callerEnv"] = json!(["KEY"]);
    builder.config(&config(&[cloud, provider("other", &plugins[1])], limits).to_string())
}

/// A configuration that serves this user and the other one.
pub(super) fn config(providers: &[Value; 2], limits: &Value) -> Value {
    let peers = json!({"uids": [rustix::process::geteuid().as_raw(), OTHER]});
    let allow = json!({"providers": ["*"], "verbs": ["get", "watch", "list"]});
    json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "limits": limits, "providers": providers,
        "listen": {"mode": "0666"}, "access": [{"name": "r", "peers": peers, "allow": allow}],
    })
}

#[test]
fn a_peer_without_any_right_is_disconnected_after_some_denials() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [provider("cloud", &plugin)], "listen": {"mode": "0666"},
        "access": [{"name": "r", "peers": {"uids": [OTHER]}, "allow": {"providers": ["*"], "verbs": ["get"]}}],
    });
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let mut peer = Raw::connect(&broker.socket(), 65_535);
    let mut deny = |stream: u32| {
        // Writes fail once the connection is closed.
        peer.request(stream, GET, &request("cloud", None, &[])).ok();
        until("it is denied", || peer.seen(|seen| seen.ended.contains(&stream) || seen.goaway));
        peer.seen(|seen| !seen.goaway)
    };
    let denied = (0..100).take_while(|number| deny(2 * number + 1)).count();
    assert!((15..=16).contains(&denied), "{denied} denials");
    until("it is closed", || peer.seen(|seen| seen.closed));
    assert_eq!(plugin.runs(), 0);
}

/// Another process that asks for a credential, of another user if this one may start it.
pub(super) fn ask(broker: &Broker, provider: &str) -> Output {
    let run = broker.socket().parent().unwrap().to_owned();
    for directory in [run.parent().unwrap(), &run] {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o711)).unwrap();
    }
    let mut shim = Command::new(PROGRAM);
    if rustix::process::geteuid().is_root() {
        shim.uid(OTHER).gid(OTHER);
    } else {
        println!("SKIPPED in part: only root can start a process of another user");
    }
    shim.args(["shim", "--provider", provider, "--socket"]).arg(broker.socket()).env_clear();
    shim.output().unwrap()
}

fn assert_served(broker: &Broker, provider: &str) {
    let answer = ask(broker, provider);
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
}

/// A connection that sends its preface and its SETTINGS, and then nothing.
fn silent(broker: &Broker) -> UnixStream {
    let mut stream = UnixStream::connect(broker.socket()).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").ok();
    stream
}

/// A connection with a call that does not end.
fn busy(broker: &Broker) -> Raw {
    let mut peer = Raw::connect(&broker.socket(), 65_535);
    peer.request(1, HEALTH_WATCH, &HealthCheckRequest::default()).ok();
    until("it is answered", || peer.seen(|seen| !seen.answered.is_empty() || seen.closed));
    peer
}

fn descriptors(broker: &Broker) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap().count()
}

/// Raises the soft limit of open files. Returns the number of connections that the test can open.
fn possible_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    limit.maximum.map_or(usize::MAX, |files| usize::try_from(files).unwrap()).saturating_sub(1000)
}

#[test]
fn ten_thousand_silent_connections_of_one_process_lock_out_no_other() {
    let count = possible_connections().min(10_000);
    if count < 10_000 {
        println!("SKIPPED in part: only {count} connections, because of the limit of open files");
    }
    let (broker, _plugins) = broker(PROGRAM, &json!({}));
    assert_served(&broker, "cloud");
    let (before, files) = (settled(broker.pid()), descriptors(&broker));
    let silent: Vec<_> = (0..count).map(|_| silent(&broker)).collect();
    // A loaded machine may still be accepting them.
    until("another process is served", || ask(&broker, "other").status.success());
    let during = settled(broker.pid());
    assert_served(&broker, "cloud");
    assert!(descriptors(&broker) < files + 256 + 200, "{} files", descriptors(&broker));
    drop(silent);
    until("its files are closed", || descriptors(&broker) <= files);
    let after = settled(broker.pid());
    println!("{before} KiB before, {during} during, {after} after");
    let allowed = before + ALLOWED;
    assert!(during <= allowed && after <= allowed, "{before}, {during}, {after} KiB");
}

/// The limit that refuses one more connection of this process.
async fn refusal(broker: &Broker) -> Option<String> {
    let client = Client::connect(&Socket::at(broker.socket())).await.ok()?;
    let Err(Error::Failed(failure)) = client.credential(&reference("cloud", None, &[])).await else {
        return None;
    };
    assert_eq!(failure.reason, Some(Reason::Overloaded), "{failure:?}");
    failure.limit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_its_share_of_busy_connections_is_refused_by_name_and_no_other_is() {
    let (broker, _plugins) = broker(PROGRAM, &json!({"connections": 12}));
    let mut connections: Vec<_> = (0..7).map(|_| busy(&broker)).collect();
    assert_eq!(refusal(&broker).await.as_deref(), Some("limits.connections"));
    assert_served(&broker, "other");
    assert!(connections.iter().all(|peer| peer.seen(|seen| !seen.goaway)), "none of them gave way");
    drop(connections.pop());
    until("the place is free", || busy(&broker).seen(|seen| !seen.closed && seen.ended.is_empty()));
}

#[test]
fn the_oldest_idle_connection_gives_way_and_learns_it() {
    let (broker, _plugins) = broker(PROGRAM, &json!({"connections": 3}));
    let get = |peer: &mut Raw, stream| {
        peer.request(stream, GET, &request("cloud", None, &[])).unwrap();
        until("it is answered", || peer.seen(|seen| seen.ended.contains(&stream) || seen.closed));
        peer.seen(|seen| seen.ended.contains(&stream))
    };
    // The connection that found the broker ready may not have ended yet.
    let served = || loop {
        let mut peer = Raw::connect(&broker.socket(), 65_535);
        if get(&mut peer, 1) && peer.seen(|seen| seen.data.contains_key(&1)) {
            break peer;
        }
    };
    let mut peers = [served(), served()];
    // It is refused until one of the others is idle for a second.
    let _third = loop {
        let third = busy(&broker);
        until("it is decided", || {
            third.seen(|seen| seen.data.contains_key(&1) || !seen.ended.is_empty() || seen.closed)
        });
        if third.seen(|seen| seen.data.contains_key(&1)) {
            break third;
        }
    };
    assert_served(&broker, "other");
    until("the first one is closed", || peers[0].seen(|seen| seen.goaway && seen.closed));
    assert!(get(&mut peers[1], 3), "the other is not");
}

#[test]
fn ten_thousand_keys_of_one_process_refuse_no_first_ask_of_another() {
    let (broker, plugins) = broker(PROGRAM, &json!({"credentials": 2000}));
    assert_served(&broker, "cloud");
    let before = settled(broker.pid());
    let attack = || {
        for connection in 0..10 {
            let mut peer = Raw::connect(&broker.socket(), 65_535);
            for stream in 0..1000 {
                let key = (connection * 1000 + stream).to_string();
                peer.request(2 * stream + 1, GET, &request("cloud", None, &[("KEY", &key)])).unwrap();
            }
            // Its keys remain: their runs are queued.
            until("the requests arrived", || peer.seen(|seen| !seen.ended.is_empty()) || held(&broker) > 0);
        }
    };
    attack();
    assert_served(&broker, "other");
    assert_eq!(plugins[1].runs(), 1);
    assert_served(&broker, "cloud");
    println!("{before} KiB before, {} after", settled(broker.pid()));
}

/// The number of keys that the broker shows.
fn held(broker: &Broker) -> usize {
    let mut status = Command::new(PROGRAM);
    let output = status.args(["status", "--socket"]).arg(broker.socket()).env_clear().output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count().saturating_sub(1)
}

#[test]
fn a_broker_with_few_file_descriptors_keeps_some_for_its_plugins() {
    let directory = private_directory();
    let limited = directory.path().join("limited");
    private_file(&limited, &format!("#!/bin/sh\nulimit -n 64\nexec '{PROGRAM}' \"$@\"\n"));
    std::fs::set_permissions(&limited, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (broker, plugins) = broker(&limited, &json!({}));
    let connections: Vec<_> = (0..100).map(|_| silent(&broker)).collect();
    let busy: Vec<_> = (0..20).map(|_| busy(&broker)).collect();
    assert!(descriptors(&broker) <= 64, "{}", descriptors(&broker));
    assert_served(&broker, "cloud");
    assert_served(&broker, "other");
    assert_eq!((plugins[0].runs(), plugins[1].runs()), (1, 1));
    drop((busy, connections));
}
