//! Notifications for systemd.

use std::{io, os::unix::net::UnixDatagram};

use credbroker_test_support::{Broker, FakePlugin, private_directory};
use serde_json::json;
use tempfile::TempDir;

use super::{PROGRAM, until};
use crate::harness::provider;

/// A broker with a watchdog, and the socket on which systemd hears of it.
struct Notified {
    broker: Broker,
    systemd: UnixDatagram,
    _directory: (TempDir, FakePlugin),
}

impl Notified {
    fn start() -> Self {
        let directory = private_directory();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let plugin = FakePlugin::builder().token("t").build();
        let broker = Broker::builder(PROGRAM)
            .providers(&json!([provider("cloud", &plugin)]))
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "600000")
            .start();
        Self { broker, systemd, _directory: (directory, plugin) }
    }
}

fn next(systemd: &UnixDatagram) -> io::Result<String> {
    let mut message = [0; 256];
    let length = systemd.recv(&mut message)?;
    Ok(String::from_utf8_lossy(&message[..length]).trim_end().to_owned())
}

#[test]
fn systemd_hears_that_it_is_ready_that_it_works_and_that_it_stops() {
    let Notified { broker, systemd, _directory } = Notified::start();
    let next = || next(&systemd).unwrap();
    assert_eq!(next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    assert_eq!(broker.stop().0.code(), Some(0));
    let last = std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1");
    assert_eq!(last.unwrap(), "STOPPING=1");
}

#[test]
fn a_broker_that_cannot_call_itself_stops_its_notifications() {
    let Notified { broker, systemd, _directory } = Notified::start();
    // All of its tasks run, but the name of its socket leads to a file, which the broker does not replace.
    std::fs::remove_file(broker.socket()).unwrap();
    std::fs::write(broker.socket(), "").unwrap();
    let warnings = || broker.log().matches("the broker cannot call itself").count();
    until("it warns", || warnings() > 0);
    systemd.set_nonblocking(true).unwrap();
    while next(&systemd).is_ok() {}
    let before = warnings();
    until("it has tried twice more", || warnings() >= before + 2);
    assert_eq!(next(&systemd).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
