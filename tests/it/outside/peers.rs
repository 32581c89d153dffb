//! Peers that do not let go.

use std::time::Duration;

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use super::{raw::Raw, until};
use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";

fn broker() -> (Broker, FakePlugin) {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    (Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start(), plugin)
}

#[test]
fn a_peer_that_takes_nothing_of_its_answers_is_cut_off() {
    let (broker, _plugin) = broker();
    let mut slow = Raw::connect(&broker.socket(), 0);
    let mut idle = Raw::connect(&broker.socket(), 65_535);
    slow.request(1, GET, &crate::harness::request("cloud", None, &[])).unwrap();
    idle.request(1, GET, &crate::harness::request("cloud", None, &[])).unwrap();
    until("it is closed", || slow.seen(|seen| seen.closed));
    assert!(slow.seen(|seen| seen.answered.contains(&1)), "its answer had begun");
    idle.request(3, GET, &crate::harness::request("cloud", None, &[])).unwrap();
    until("a silent peer that took its answer is served", || idle.seen(|seen| seen.ended.contains(&3)));
}

#[test]
fn a_request_that_does_not_end_is_answered_all_the_same() {
    let (broker, _plugin) = broker();
    let mut peer = Raw::connect(&broker.socket(), 65_535);
    peer.headers(1, GET).unwrap();
    assert!(peer.data(1, &[0, 0], false, Duration::from_secs(5)));
    until("it is answered", || peer.seen(|seen| seen.ended.contains(&1)));
    peer.request(3, GET, &crate::harness::request("cloud", None, &[])).unwrap();
    until("its connection goes on", || peer.seen(|seen| seen.ended.contains(&3)));
}

fn assert_drains(broker: Broker) {
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("drained") && !log.contains("grace period"), "{log}");
}

#[test]
fn a_peer_that_acknowledges_nothing_does_not_hold_a_drain_up() {
    let (broker, _plugin) = broker();
    let mute = Raw::mute(&broker.socket());
    until("the handshake is done", || mute.seen(|seen| seen.window > 65_535));
    assert_drains(broker);
}

#[test]
fn a_request_that_never_ends_does_not_hold_a_drain_up() {
    let (broker, _plugin) = broker();
    let mut peer = Raw::connect(&broker.socket(), 65_535);
    peer.headers(1, GET).unwrap();
    assert!(peer.data(1, &[0, 0], false, Duration::from_secs(5)));
    peer.request(3, GET, &crate::harness::request("cloud", None, &[])).unwrap();
    until("the second one is answered", || peer.seen(|seen| seen.ended.contains(&3)));
    assert_drains(broker);
}

#[test]
fn an_answer_that_is_not_read_does_not_hold_a_drain_up() {
    let (broker, _plugin) = broker();
    let mut peer = Raw::connect(&broker.socket(), 0);
    peer.request(1, GET, &crate::harness::request("cloud", None, &[])).unwrap();
    until("the answer has begun", || peer.seen(|seen| seen.answered.contains(&1)));
    assert_drains(broker);
}
