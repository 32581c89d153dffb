//! Notifications for systemd.

use std::{
    fs::{self, Permissions},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixDatagram, UnixListener},
            process::CommandExt as _,
        },
    },
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use credbroker_test_support::{Broker, FakePlugin, private_directory, private_file};
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
    fs::rename(broker.socket(), broker.socket().with_extension("moved")).unwrap();
    let log = |text: &str| broker.log().contains(text);
    super::until("it warns", || log("the broker cannot call itself"));
    drop(systemd);
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
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        let mut message = [0; 256];
        systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let length = systemd.recv(&mut message).expect("a notification");
        assert_eq!(str::from_utf8(&message[..length]).unwrap().trim_end(), expected);
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
