//! Copies of secrets in the memory of the broker. Only root can look.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    process::Command,
    time::Duration,
};

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin};
use serde_json::json;

use super::{raw::Raw, until};
use crate::harness::{provider, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";
const WATCH: &str = "/credbroker.v1.CredentialBroker/WatchCredential";
/// Not a part of any program or document.
const CANARY: &str = "c4n4ry-7f1d9e0b-token-that-is-nowhere-else-8ab2c6";

/// How often each of `secrets` is in the writable memory of the process.
fn copies<const N: usize>(pid: u32, secrets: [&str; N]) -> [usize; N] {
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).unwrap());
    let mut memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut counts = [0; N];
    for line in maps.lines().map_while(Result::ok) {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
        if !rights.starts_with("rw") || line.ends_with("[vvar]") {
            continue;
        }
        let ends: Vec<_> = range.split('-').map(|end| u64::from_str_radix(end, 16).unwrap()).collect();
        let mut bytes = vec![0; usize::try_from(ends[1] - ends[0]).unwrap()];
        if memory.seek(SeekFrom::Start(ends[0])).is_ok() && memory.read_exact(&mut bytes).is_ok() {
            for (count, secret) in counts.iter_mut().zip(secrets) {
                *count += occurrences(&bytes, secret.as_bytes());
            }
        }
    }
    counts
}

fn occurrences(bytes: &[u8], secret: &[u8]) -> usize {
    let first = secret[0];
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.filter(|(start, _)| bytes[*start..].starts_with(secret)).count()
}

fn run(broker: &Broker, args: &[&str]) -> bool {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--socket").arg(broker.socket()).env_clear();
    command.output().unwrap().status.success()
}

#[test]
fn after_load_memory_has_one_copy_of_each_secret_and_after_an_eviction_none() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can read the memory of the broker");
        return;
    }
    let server = ApiServer::start(Accepts::Either);
    let (certificate, key) = server.issue_client_certificate("someone", Duration::from_secs(3600));
    let plugin = FakePlugin::builder().token(CANARY).pair(&certificate, &key).expires_in(3600).build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    // A line of the PEM, as the plugin prints it, as the broker checks it and as it sends it.
    let body = key.lines().nth(1).unwrap();
    let count = || copies(broker.pid(), [CANARY, body]);

    let mut peers: Vec<_> = (0..8).map(|_| Raw::connect(&broker.socket(), 16 << 20)).collect();
    for peer in &mut peers {
        for stream in 0..100 {
            let path = if stream % 10 == 9 { WATCH } else { GET };
            peer.request(2 * stream + 1, path, &request("cloud", None, &[])).unwrap();
        }
    }
    for peer in &peers {
        until("all is answered", || {
            peer.seen(|seen| {
                println!("{} {} {}", seen.answered.len(), seen.ended.len(), seen.closed);
                seen.answered.len() == 190 && seen.ended.len() == 90
            })
        });
    }
    assert!((0..5).all(|_| run(&broker, &["shim", "--provider", "cloud"])));
    assert!((0..3).all(|_| run(&broker, &["refresh", "cloud"])), "the old ones are wiped");
    drop(peers);
    until("one entry holds each secret once", || count() == [1, 1]);
    assert!(run(&broker, &["evict", "--all"]));
    until("no copy is left", || count() == [0, 0]);
    assert!(run(&broker, &["shim", "--provider", "cloud"]), "the broker goes on");
    assert_ne!(count(), [0, 0], "the scan finds what is there");
}
