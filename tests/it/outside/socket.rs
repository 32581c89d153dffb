//! A socket whose name goes away comes back, and what others put there stays.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
};

use credbroker_client::{Client, Socket};
use credbroker_test_support::{Broker, FakePlugin};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{AGES, raw::Raw, until};
use crate::harness::{provider, reference, request};

const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";
const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

fn broker() -> (Broker, FakePlugin) {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    (Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start(), plugin)
}

fn answers(broker: &Broker) -> bool {
    UnixStream::connect(broker.socket()).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_removed_is_published_again_and_connections_go_on() {
    let (broker, _plugin) = broker();
    let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    client.credential(&reference("cloud", None, &[])).await.unwrap();
    for _ in 0..2 {
        fs::remove_file(broker.socket()).unwrap();
        until("it is back", || answers(&broker));
        let found = fs::symlink_metadata(broker.socket()).unwrap();
        assert_eq!((found.file_type().is_socket(), found.permissions().mode() & 0o777), (true, 0o600));
        let late = Client::connect(&Socket::at(broker.socket())).await.unwrap();
        late.credential(&reference("cloud", None, &[])).await.unwrap();
    }
    client.credential(&reference("cloud", None, &[])).await.expect("the connection from before goes on");
    let socket = broker.socket();
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(log.matches("published again").count(), 2, "{log}");
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("published again")), "{log}");
    assert!(!socket.exists(), "the new name goes at the end too");
}

/// A client that finds no socket waits for the next broker. One that connects to a broker that ends would be lost.
#[test]
fn at_a_drain_the_name_goes_first_and_calls_in_progress_are_answered() {
    let (broker, _plugin) = broker();
    let mut peer = Raw::connect(&broker.socket(), 65_535);
    peer.request(1, GET, &request("cloud", None, &[])).unwrap();
    until("it is answered", || peer.seen(|seen| seen.ended.contains(&1)));
    peer.headers(3, GET).unwrap();
    assert!(peer.data(3, &[0], false, AGES), "a request that is not whole");
    let pid = Pid::from_raw(broker.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("the name is gone", || !broker.socket().exists());
    assert!(peer.data(3, &[0; 4], true, AGES), "the rest of it: an empty message");
    until("it is answered", || peer.seen(|seen| seen.ended.contains(&3) || seen.closed));
    assert!(peer.seen(|seen| seen.ended.contains(&3)));
}

#[test]
fn what_others_put_in_its_place_is_not_touched() {
    let (broker, _plugin) = broker();
    fs::remove_file(broker.socket()).unwrap();
    fs::write(broker.socket(), "precious").unwrap();
    until("it warns", || broker.log().contains("is not a socket"));
    assert_eq!(fs::read(broker.socket()).unwrap(), b"precious");
    fs::remove_file(broker.socket()).unwrap();
    let foreign = UnixListener::bind(broker.socket());
    if let Ok(foreign) = foreign {
        until("it warns", || broker.log().contains("another process listens on"));
        foreign.set_nonblocking(true).unwrap();
        fs::remove_file(broker.socket()).unwrap();
    }
    until("it is back", || answers(&broker));
    let log = broker.stop().1;
    assert_eq!(log.matches("is not a socket").count(), 1, "said once: {log}");
}

#[test]
fn a_directory_that_others_can_write_to_is_refused_until_it_is_safe() {
    let (broker, _plugin) = broker();
    let directory = broker.socket().parent().unwrap().to_owned();
    let mode = |mode| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    fs::remove_file(broker.socket()).unwrap();
    until("it warns", || broker.log().contains("must belong to uid"));
    assert!(!broker.socket().exists());
    mode(0o700);
    until("it is back", || answers(&broker));
}

#[test]
fn a_broker_whose_lock_was_taken_away_does_not_fight_for_the_name() {
    let (broker, _plugin) = broker();
    let directory = broker.socket().parent().unwrap().to_owned();
    let lock =
        fs::read_dir(&directory).unwrap().flatten().find(|file| file.path() != broker.socket()).unwrap();
    fs::remove_file(lock.path()).unwrap();
    fs::remove_file(broker.socket()).unwrap();
    until("it warns", || broker.log().contains("the lock"));
    assert!(!broker.socket().exists());
    // A successor may come.
    fs::write(directory.join("mark"), "").unwrap();
    assert_eq!(broker.stop().0.code(), Some(0));
}
