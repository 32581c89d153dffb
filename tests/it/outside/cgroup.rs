//! A broker with its plugins in a memory cgroup, as systemd and Kubernetes make it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use credbroker_test_support::{Broker, FakePlugin};
use rustix::process::getpid;
use serde_json::json;

use super::{raw::Raw, until};
use crate::harness::{provider, request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";

/// A memory cgroup. Dropping it removes it, once its processes have ended.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`: this user cannot make one here.
    fn new(name: &str, bytes: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |controller: &str| {
            own.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        // Version 1 has a hierarchy for memory; in version 2 the controller has to be there for children.
        let (parent, limit) = match of("memory") {
            Some(own) => (Path::new("/sys/fs/cgroup/memory").join(own), "memory.limit_in_bytes"),
            None => (Path::new("/sys/fs/cgroup").join(of("")?), "memory.max"),
        };
        let cgroup = Self(parent.join(format!("credbroker-{name}-{}", getpid())));
        fs::create_dir(&cgroup.0).ok()?;
        fs::write(cgroup.0.join(limit), bytes.to_string()).ok()?;
        // Where there is swap, memory would not run out.
        fs::write(cgroup.0.join("memory.swap.max"), "0").ok();
        Some(cgroup)
    }

    fn enter(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        until("its processes have ended", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

fn is_served(broker: &Broker, provider: &str) -> bool {
    let mut peer = Raw::connect(&broker.socket(), 65_535);
    peer.request(1, GET, &request(provider, None, &[])).unwrap();
    until("it is answered", || peer.seen(|seen| !seen.ended.is_empty() || seen.closed));
    peer.seen(|seen| seen.data.contains_key(&1))
}

#[test]
fn what_takes_too_much_memory_ends_and_not_the_broker() {
    let Some(cgroup) = Cgroup::new("small", 64 << 20) else {
        println!("SKIPPED: no memory cgroup can be made here");
        return;
    };
    let modest = FakePlugin::builder().token("t").expires_in(3600).build();
    let greedy = FakePlugin::script("head -c 1000000000 /dev/zero | tail\n");
    let providers = json!([provider("modest", &modest), provider("greedy", &greedy)]);
    let broker = Broker::builder(PROGRAM).providers(&providers).start();
    cgroup.enter(broker.pid());
    assert!(is_served(&broker, "modest"));
    let get =
        Command::new(PROGRAM).args(["get", "greedy", "--socket"]).arg(broker.socket()).output().unwrap();
    let error = String::from_utf8(get.stderr).unwrap();
    assert!(error.contains("signal 9; memory may have run out"), "the plugin was ended: {error}");
    assert_eq!(greedy.runs(), 1);
    let peers: Vec<_> = (0..8)
        .map(|_| {
            let mut peer = Raw::connect(&broker.socket(), 65_535);
            for stream in 0..1000 {
                peer.headers_with(2 * stream + 1, GET, 7000).ok();
            }
            peer
        })
        .collect();
    until("the peers are refused", || peers.iter().all(|peer| peer.seen(|seen| !seen.ended.is_empty())));
    drop(peers);
    until("it is served again", || is_served(&broker, "modest"));
    assert_eq!(modest.runs(), 1, "the broker lives, and has what it had");
    drop(broker);
}
