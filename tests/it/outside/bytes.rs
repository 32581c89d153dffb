//! `limits.bytes` is what the requests of peers really take, and one uid's are not taken from others.

use std::time::Duration;

use credbroker_proto::v1 as pb;
use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use super::{
    door::{ask, config},
    memory::{peak, settled},
    raw::Raw,
};
use crate::harness::{provider, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";
const CONNECTIONS: u32 = 250;
/// Those that read nothing, or send ahead what they can.
const FEW: usize = 12;
/// How long a peer waits until it may send more.
const SOON: Duration = Duration::from_millis(200);
/// Of each connection, unless one is refused.
const REQUESTS: u32 = 40;
const MIB: usize = 1 << 20;
const BYTES: usize = 24 * MIB;
const ENTRY_BYTES: usize = 16 * MIB;
/// What one process may have of them while no other uid has any.
const SHARE: usize = BYTES / 16 * 9;

/// A broker whose provider `cloud` never answers, and whose provider `other` has.
fn broker() -> (Broker, [FakePlugin; 2]) {
    let never = FakePlugin::script("exec sleep 300\n");
    let plugins = [never, FakePlugin::builder().token("t").expires_in(3600).build()];
    let mut cloud = provider("cloud", &plugins[0]);
    cloud["execConfig"]["provideClusterInfo"] = true.into();
    cloud["clusterInfo"] = "FromCaller".into();
    let providers = [cloud, provider("other", &plugins[1])];
    let limits = json!({"bytes": BYTES, "credentialBytes": ENTRY_BYTES});
    let broker = Broker::builder(PROGRAM).config(&config(&providers, &limits).to_string()).start();
    assert_served(&broker);
    (broker, plugins)
}

fn assert_served(broker: &Broker) {
    let answer = ask(broker, "other");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
}

/// Checks what `attack` costs while it lasts, of what one uid may have, and that the other user loses nothing.
#[expect(clippy::print_stdout, reason = "the figures, shown with `--nocapture`")]
fn assert_within(name: &str, most: usize, attack: impl FnOnce(&Broker) -> Vec<Raw>) {
    let (broker, [_, other]) = broker();
    let before = settled(broker.pid());
    let peers = attack(&broker);
    let held = settled(broker.pid()).saturating_sub(before);
    let more = peak(broker.pid()).saturating_sub(before);
    let (refused, most) = (ended(&peers), most as u64 / 1024);
    println!(
        "{name}: {more} KiB, then {held}, of {most}; {refused} requests of {} connections were refused",
        peers.len()
    );
    assert!((most / 4..=most + most / 5).contains(&more), "{name}: {more} KiB more, of {most}");
    assert_served(&broker);
    assert_eq!(other.runs(), 1, "what the other user had is still there");
}

fn ended(peers: &[Raw]) -> usize {
    peers.iter().map(|peer| peer.seen(|seen| seen.ended.len())).sum()
}

/// Connections that each make requests with `send` until one of them is refused.
fn until_refused(broker: &Broker, send: impl Fn(&mut Raw, u32, u32) -> bool) -> Vec<Raw> {
    let peers = (0..CONNECTIONS).map(|connection| {
        let mut peer = Raw::connect(&broker.socket(), 65_535);
        for number in 0..REQUESTS {
            let is_sent = send(&mut peer, 2 * number + 1, connection * REQUESTS + number);
            if !is_sent || peer.seen(|seen| !seen.ended.is_empty() || seen.closed) {
                break;
            }
        }
        peer
    });
    peers.collect()
}

#[test]
fn requests_that_do_not_end_take_what_is_configured() {
    let message = [&[0, 0, 3, 0x20, 0][..], &vec![0; 199_000]].concat();
    assert_within("unfinished", SHARE, |broker| {
        until_refused(broker, |peer, stream, _| {
            peer.headers(stream, GET).is_ok() && peer.data(stream, &message, false, SOON)
        })
    });
}

#[test]
fn requests_that_wait_take_what_is_configured() {
    assert_within("waiting", SHARE + ENTRY_BYTES, |broker| {
        until_refused(broker, |peer, stream, key| {
            let cluster = pb::Cluster {
                server: format!("https://cluster-{key}:6443"),
                certificate_authority_data: Some(vec![b'c'; 199_000].into()),
                ..Default::default()
            };
            peer.request(stream, GET, &request("cloud", Some(cluster), &[])).is_ok()
        })
    });
}

#[test]
fn requests_that_are_refused_take_no_more() {
    let message = [&[0, 0, 3, 0x20, 0][..], &vec![0; 199_000]].concat();
    assert_within("refused", SHARE, |broker| {
        let mut deaf: Vec<_> = (0..FEW).map(|_| Raw::deaf(&broker.socket())).collect();
        for peer in &mut deaf {
            peer.request(1, GET, &request("other", None, &[])).unwrap();
        }
        let mut peers = until_refused(broker, |peer, stream, _| {
            peer.headers(stream, GET).is_ok() && peer.data(stream, &message, false, SOON)
        });
        std::thread::scope(|scope| {
            for peer in &mut deaf {
                scope.spawn(|| (1..1000).all(|number| peer.headers(2 * number + 1, GET).is_ok()));
            }
        });
        peers.extend(deaf);
        peers
    });
}

#[test]
fn what_peers_send_ahead_of_unread_answers_takes_what_is_configured() {
    let message = [&[0, 0, 3, 0x20, 0][..], &vec![0; 199_000]].concat();
    assert_within("waiting for room", SHARE, |broker| {
        let mut peers: Vec<_> = (0..2 * FEW).map(|_| Raw::connect(&broker.socket(), 0)).collect();
        for peer in &mut peers {
            for number in 0..500 {
                peer.request(2 * number + 1, GET, &request("other", None, &[])).unwrap();
                if peer.seen(|seen| !seen.ended.is_empty()) {
                    break;
                }
            }
        }
        for peer in &mut peers {
            for number in 500..530 {
                let stream = 2 * number + 1;
                if peer.headers(stream, GET).is_err() || !peer.data(stream, &message, true, SOON) {
                    break;
                }
            }
        }
        peers
    });
}
