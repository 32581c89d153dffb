//! Notifications for systemd.

use std::{
    fs::{self, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixDatagram, UnixListener},
            process::CommandExt as _,
        },
    },
    path::Path,
    process::Command,
    time::Duration,
};

use credbroker_test_support::{Broker, FakePlugin, private_directory, private_file};
use serde_json::json;
use tempfile::TempDir;

use super::{PROGRAM, until};
use crate::harness::{Killed, provider};

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
    fs::remove_file(broker.socket()).unwrap();
    fs::write(broker.socket(), "").unwrap();
    let warnings = || broker.log().matches("the broker cannot call itself").count();
    until("it warns", || warnings() > 0);
    systemd.set_nonblocking(true).unwrap();
    while next(&systemd).is_ok() {}
    let before = warnings();
    until("it has tried twice more", || warnings() >= before + 2);
    assert_eq!(next(&systemd).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// As systemd starts the system service: with the socket of another user. Only root can do that.
#[test]
fn a_broker_that_may_not_connect_to_its_socket_calls_itself_nevertheless() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let directory = private_directory();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set_mode(directory.path(), 0o755);
    let [path, run, config] = ["notify", "run", "config.yaml"].map(|name| directory.path().join(name));
    let systemd = UnixDatagram::bind(&path).unwrap();
    set_mode(&path, 0o666);
    fs::create_dir(&run).unwrap();
    set_mode(&run, 0o700);
    let socket = UnixListener::bind(run.join("broker.sock")).unwrap();
    let text = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [{"name": "p", "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never",
        }}],
    });
    private_file(&config, &text.to_string());
    set_mode(&config, 0o644);
    let script = r#"export LISTEN_PID=$$; exec "$0" serve --config "$1" 3<&0"#;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, PROGRAM]).arg(&config).env_clear();
    command.env("LISTEN_FDS", "1").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "600000");
    let _broker = Killed(command.uid(61_001).gid(61_001).stdin(OwnedFd::from(socket)).spawn().unwrap());
    systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        assert_eq!(next(&systemd).unwrap(), expected);
    }
}
