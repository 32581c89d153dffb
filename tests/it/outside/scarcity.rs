//! A broker that runs out of descriptors or memory: what it holds is served, and afterwards everything else is too.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use credbroker_client::{Client, Error, Socket};
use credbroker_proto::Reason;
use credbroker_test_support::{Broker, FakePlugin};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use super::{children, descriptors, resident, until, until_idle};
use crate::harness::{provider, reference};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
/// KiB that a broker may have more afterwards.
const MORE: u64 = 10 << 10;

/// A limit of the broker, by its name in `/proc/PID/limits`.
const FILES: (Resource, &str) = (Resource::Nofile, "Max open files");
const MEMORY: (Resource, &str) = (Resource::As, "Max address space");

fn limit(broker: &Broker, (_, name): (Resource, &str)) -> Rlimit {
    let limits = fs::read_to_string(format!("/proc/{}/limits", broker.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let mut values = line.split_whitespace().map(|value| value.parse().ok());
    Rlimit { current: values.next().unwrap(), maximum: values.next().unwrap() }
}

fn set_limit(broker: &Broker, (resource, _): (Resource, &str), limit: Rlimit) {
    let pid = Pid::from_raw(broker.pid().try_into().unwrap()).unwrap();
    prlimit(Some(pid), resource, limit).unwrap();
}

/// The size of its address space in bytes.
fn size(broker: &Broker) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", broker.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A broker with this soft limit of a resource, until it is lifted.
async fn survives(resource: (Resource, &str), scarce: impl FnOnce(&Broker) -> u64) {
    let plugins = [(), ()].map(|()| FakePlugin::builder().token("t").expires_in(3600).build());
    let providers = json!([provider("held", &plugins[0]), provider("other", &plugins[1])]);
    let broker = Broker::builder(PROGRAM).providers(&providers).start();
    let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    let get = async |provider| client.credential(&reference(provider, None, &[])).await;
    get("held").await.unwrap();
    until("the run has ended", || children(broker.pid()).is_empty());
    let (memory, files) = (resident(broker.pid()), descriptors(broker.pid()));

    let before = limit(&broker, resource);
    set_limit(&broker, resource, Rlimit { current: Some(scarce(&broker)), ..before });
    for _ in 0..100 {
        get("held").await.unwrap();
    }
    let failure = match get("other").await {
        Err(Error::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!(failure.reason, Some(Reason::SpawnFailed), "{failure:?}");
    // It connects, and the broker cannot take the connection.
    let mut waits = Command::new(PROGRAM);
    waits.args(["get", "held", "--socket"]).arg(broker.socket()).env_clear().stdout(Stdio::null());
    let mut waits = waits.spawn().unwrap();
    until_idle(broker.pid());
    get("held").await.unwrap();

    set_limit(&broker, resource, before);
    assert!(waits.wait().unwrap().success(), "it is served when there is room");
    let refresh = Command::new(PROGRAM).args(["refresh", "held", "--socket"]).arg(broker.socket()).output();
    assert!(refresh.unwrap().status.success());
    tokio::time::sleep(failure.retry_after.unwrap_or_default()).await;
    get("other").await.unwrap();
    until("nothing is left", || children(broker.pid()).is_empty() && descriptors(broker.pid()) <= files);
    until("its memory is free", || resident(broker.pid()) <= memory + MORE);
    until_idle(broker.pid());
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[tokio::test]
async fn what_is_held_is_served_without_free_descriptors() {
    survives(FILES, |broker| {
        let is_free = |number: &u64| !Path::new(&format!("/proc/{}/fd/{number}", broker.pid())).exists();
        (0..1024).find(is_free).unwrap()
    })
    .await;
}

#[tokio::test]
async fn what_is_held_is_served_without_free_address_space() {
    survives(MEMORY, size).await;
}
