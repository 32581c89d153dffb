//! Many watches on one connection.

use std::fs;

use credbroker_proto::v1::WatchCredentialRequest;
use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use super::{raw::Raw, until};
use crate::harness::{provider, request};

const WATCH: &str = "/credbroker.v1.CredentialBroker/WatchCredential";
const WATCHES: u32 = 500;

/// System calls by which a process wrote so far.
fn writes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap().parse().unwrap()
}

#[test]
fn messages_of_one_rotation_are_written_together() {
    let credential = FakePlugin::builder().expires_in(3600);
    let plugin = credential.clone().token("first").build();
    let broker = Broker::builder(env!("CARGO_BIN_EXE_credbroker"))
        .providers(&json!([provider("cloud", &plugin)]))
        .start();
    let mut peer = Raw::connect(&broker.socket(), 0x7fff_ffff);
    for number in 0..WATCHES {
        let message = WatchCredentialRequest { r#ref: request("cloud", None, &[]).r#ref };
        peer.request(2 * number + 1, WATCH, &message).unwrap();
    }
    let all_have = |bytes: usize| {
        peer.seen(|seen| seen.data.values().filter(|&&had| had > bytes).count() == WATCHES as usize)
    };
    until("each has the first credential", || all_have(0));
    let first = peer.seen(|seen| seen.data.values().copied().max().unwrap());

    let before = writes(broker.pid());
    plugin.becomes(&credential.token("second"));
    let upgrade = plugin.dir().join("upgrade");
    fs::copy(plugin.path(), &upgrade).unwrap();
    fs::rename(upgrade, plugin.path()).unwrap();
    until("each has the second credential", || all_have(first));
    let took = writes(broker.pid()) - before;
    assert!(took < u64::from(WATCHES) / 2, "{took} writes for {WATCHES} messages");
}
