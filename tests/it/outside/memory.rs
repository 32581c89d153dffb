//! What one permitted peer can make the broker hold.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use credbroker_proto::v1 as pb;
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tonic_health::pb::HealthCheckRequest;

use super::{AGES, raw::Raw, resident, until};
use crate::harness::{provider, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
const WATCH_CLUSTERS: &str = "/credbroker.v1.CredentialBroker/WatchClusters";
/// What an attack may cost, in KiB. A thousand open streams of any kind cost about 2.3 MiB.
const ALLOWED: u64 = if cfg!(debug_assertions) { 16 * 1024 } else { 10 * 1024 };

/// Runs `attack` against a broker in use, and measures what it costs while it lasts and what is kept after it.
#[expect(clippy::print_stdout, reason = "the figures, shown with `--nocapture`")]
fn assert_bounded(name: &str, broker: &Broker, attack: impl FnOnce() -> Vec<Raw>) {
    let before = settled(broker.pid());
    let peers = attack();
    let during = settled(broker.pid());
    drop(peers);
    let deadline = Instant::now() + AGES;
    let mut after = settled(broker.pid());
    while after > before + ALLOWED && Instant::now() < deadline {
        after = settled(broker.pid());
    }
    let more = |now: u64| now.saturating_sub(before);
    println!("{name}: {before} KiB before, {} more during, {} more after", more(during), more(after));
    assert!(more(during) <= ALLOWED && more(after) <= ALLOWED, "{name}: {before}, {during}, {after} KiB");
}

/// The largest figure until it no longer changes.
pub(super) fn settled(pid: u32) -> u64 {
    let (mut last, mut most, mut calm) = (resident(pid), 0, 0);
    while calm < 5 {
        std::thread::sleep(Duration::from_millis(100));
        let now = resident(pid);
        calm = if now.abs_diff(last) < 64 { calm + 1 } else { 0 };
        (last, most) = (now, most.max(now));
    }
    last.max(if calm < 5 { most } else { last })
}

fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// A broker that was used: threads, buffers and the credential are there.
fn warm(plugin: &FakePlugin) -> Broker {
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", plugin)])).start();
    let mut peer = Raw::connect(&broker.socket(), 16 << 20);
    for stream in streams(200) {
        peer.request(stream, GET, &request("cloud", None, &[])).unwrap();
    }
    until("it is warm", || peer.seen(|seen| seen.ended.len() == 200));
    broker
}

/// The most memory that was resident so far, in KiB.
pub(super) fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn stderr_of_plugins_that_is_not_text() {
    let kinds = ["a", "\\200", "\\277", "\\n", "\\r", "\\0", "\\033"];
    let plugins: Vec<_> = kinds
        .iter()
        .map(|byte| {
            FakePlugin::script(&format!("tr '\\0' '{byte}' < /dev/zero | head -c 16000000 >&2\nexit 1\n"))
        })
        .collect();
    let named = |number: usize| format!("plugin-{number}");
    let providers: Vec<_> = plugins
        .iter()
        .enumerate()
        .map(|(number, plugin)| {
            let mut provider = provider(&named(number), plugin);
            provider["timeout"] = "300s".into();
            provider
        })
        .collect();
    let broker = Broker::builder(PROGRAM).providers(&Value::from(providers)).start();
    let run = |number: usize| {
        let mut peer = Raw::connect(&broker.socket(), 65_535);
        peer.request(1, GET, &request(&named(number), None, &[])).unwrap();
        let deadline = Instant::now() + 5 * AGES;
        while peer.seen(|seen| seen.ended.is_empty()) {
            assert!(Instant::now() < deadline, "no answer: {}", kinds[number]);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(plugins[number].runs(), 1);
        peak(broker.pid())
    };
    let text = run(0);
    for (number, kind) in kinds.iter().enumerate().skip(1) {
        let more = run(number).saturating_sub(text);
        assert!(more <= 4 * 1024, "{kind}: {text} KiB, {more} more");
    }
}

#[test]
fn answers_that_are_not_read() {
    let plugin = FakePlugin::builder().token(&"t".repeat(100_000)).expires_in(3600).build();
    let broker = warm(&plugin);
    assert_bounded("unread answers", &broker, || {
        let peers = (0..4).map(|_| {
            let mut peer = Raw::connect(&broker.socket(), 0);
            for stream in streams(1000) {
                peer.request(stream, GET, &request("cloud", None, &[])).unwrap();
            }
            peer
        });
        peers.collect()
    });
    assert_eq!(plugin.runs(), 1);
}

#[test]
fn requests_that_do_not_end() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = warm(&plugin);
    assert_bounded("unfinished requests", &broker, || {
        let mut peer = Raw::connect(&broker.socket(), 65_535);
        let message = [&[0, 0, 3, 0xf0, 0][..], &vec![0; 215_000]].concat();
        for stream in streams(1000) {
            peer.headers(stream, GET).unwrap();
            if !peer.data(stream, &message, false, Duration::from_secs(2)) {
                break;
            }
        }
        vec![peer]
    });
}

#[test]
fn requests_that_only_begin() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = warm(&plugin);
    assert_bounded("begun requests", &broker, || {
        let mut peer = Raw::connect(&broker.socket(), 65_535);
        for stream in streams(1000) {
            peer.headers(stream, GET).unwrap();
            assert!(peer.data(stream, &[0], false, Duration::from_secs(2)));
        }
        vec![peer]
    });
}

#[test]
fn requests_of_which_only_large_headers_arrive() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = warm(&plugin);
    // Up to 140 MB of headers in 20,000 requests, of which a process may have 22.5 MiB: 9/16 of `limits.bytes`.
    let allowed = ALLOWED + 23 * 1024;
    let before = settled(broker.pid());
    let peers: Vec<_> = (0..20)
        .map(|_| {
            let mut peer = Raw::connect(&broker.socket(), 65_535);
            for stream in streams(1000) {
                peer.headers_with(stream, GET, 7000).unwrap();
                if peer.seen(|seen| !seen.ended.is_empty()) {
                    break;
                }
            }
            peer
        })
        .collect();
    let refused = || peers.iter().filter(|peer| peer.seen(|seen| !seen.ended.is_empty())).count();
    until("the rest is refused", || refused() >= 20 - 11);
    let during = settled(broker.pid()).saturating_sub(before);
    assert!(during <= allowed, "{during} KiB more, of {allowed}");
    drop(peers);
    until("others are served again", || {
        let mut other = Raw::connect(&broker.socket(), 65_535);
        other.request(1, GET, &request("cloud", None, &[])).unwrap();
        until("it is answered", || other.seen(|seen| !seen.ended.is_empty()));
        other.seen(|seen| seen.data.contains_key(&1))
    });
}

#[test]
fn watches_of_health() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let broker = warm(&plugin);
    assert_bounded("health watches", &broker, || {
        let peers: Vec<_> = (0..4)
            .map(|_| {
                let mut peer = Raw::connect(&broker.socket(), 65_535);
                for stream in streams(1024) {
                    let service = HealthCheckRequest { service: String::new() };
                    peer.request(stream, HEALTH_WATCH, &service).unwrap();
                }
                peer
            })
            .collect();
        for peer in &peers {
            until("each is answered", || peer.seen(|seen| seen.answered.len() >= 1024));
            // One that is refused before its body has arrived ends, and is reset.
            let too_many = peer.seen(|seen| seen.ended.iter().collect::<HashSet<_>>().len());
            assert_eq!(too_many, 24, "1,000 on a connection, and no more");
        }
        peers
    });
}

#[test]
fn watches_of_the_fleet() {
    let (server, directory) = (ApiServer::start(Accepts::Either), private_directory());
    server.accept_token("hub");
    let kubeconfig = directory.path().join("hub.kubeconfig");
    let user = json!({"token": "hub"});
    Kubeconfig::new()
        .cluster_of(&server, "hub")
        .user("hub", &user)
        .context("hub", "hub", "hub")
        .write(&kubeconfig);
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    for number in 0..2000 {
        server.apply_cluster_profile("fleet", &format!("cluster-{number:04}"), profile(number));
    }
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [provider("cloud", &plugin)], "clusterProfiles": {"kubeconfig": kubeconfig},
    });
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let watch = |count| {
        let mut peer = Raw::connect(&broker.socket(), 0x7fff_ffff);
        for stream in streams(count) {
            peer.request(stream, WATCH_CLUSTERS, &pb::WatchClustersRequest::default()).unwrap();
        }
        let all = |bytes: &usize| *bytes > 1_500_000;
        until("all are sent", || {
            peer.seen(|seen| seen.data.values().filter(|bytes| all(bytes)).count() == count as usize)
        });
        peer
    };
    drop(watch(1));
    assert_bounded("watches of the fleet", &broker, || vec![watch(100), watch(100)]);
}

fn profile(number: usize) -> Value {
    let authorities = "QUJD".repeat(250);
    let cluster = json!({
        "server": format!("https://cluster-{number:04}:6443"), "certificate-authority-data": authorities,
    });
    json!({
        "spec": {"clusterManager": {"name": "manager"}, "displayName": format!("Cluster {number}")},
        "status": {"accessProviders": [{"name": "cloud", "cluster": cluster}]},
    })
}
