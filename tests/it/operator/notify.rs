//! Notifications for systemd.

use std::os::unix::net::UnixDatagram;

use credbroker_test_support::{Broker, FakePlugin, private_directory};
use serde_json::json;

use super::PROGRAM;
use crate::harness::provider;

#[test]
fn systemd_hears_that_it_is_ready_that_it_works_and_that_it_stops() {
    let directory = private_directory();
    let path = directory.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin)]))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "600000")
        .start();
    let next = || {
        let mut message = [0; 256];
        let length = systemd.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(next().trim_end(), "READY=1");
    for _ in 0..3 {
        assert_eq!(next().trim_end(), "WATCHDOG=1");
    }
    assert_eq!(broker.stop().0.code(), Some(0));
    let last = std::iter::repeat_with(next).find(|message| message.trim_end() != "WATCHDOG=1");
    assert_eq!(last.unwrap().trim_end(), "STOPPING=1");
}

#[test]
fn a_broker_that_does_not_answer_stops_its_notifications() {
    let directory = private_directory();
    let path = directory.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin)]))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "600000")
        .start();
    // The name of its socket leads nowhere: a call cannot be made, although all of its tasks run.
    std::fs::rename(broker.socket(), broker.socket().with_extension("moved")).unwrap();
    let log = |text: &str| broker.log().contains(text);
    super::until("it warns", || log("the broker cannot call itself"));
    drop(systemd);
}
