//! SIGHUP, and the end of a terminal, with the real binary.

use std::{
    os::unix::net::UnixStream,
    process::{Command, Output, Stdio},
    time::Instant,
};

use credbroker_test_support::Broker;
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

fn shim(socket: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["shim", "--provider", "cloud", "--socket"]).arg(socket).env_clear().stdin(Stdio::null());
    command.output().unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + AGES;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn sighup_reads_the_files_and_never_ends_the_process() {
    let plugin = prints("t");
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let pid = Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap();
    for count in 1..=3 {
        kill_process(pid, Signal::HUP).unwrap();
        until("it is logged", || broker.log().matches("configuration unchanged").count() >= count);
    }
    assert_eq!(broker.log().matches("configuration unchanged").count(), 3, "one line for each");
    for _ in 0..1000 {
        kill_process(pid, Signal::HUP).unwrap();
    }
    assert!(shim(&broker.socket()).status.success());
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(plugin.runs(), 1);
}

/// As `credbroker serve &` in a terminal that is closed: SIGHUP comes, and stdin and stderr are gone.
#[test]
fn a_broker_in_the_background_outlives_its_terminal() {
    let (old, new) = (prints("old"), prints("new"));
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("run/socket"));
    let write = |plugin| {
        let config_of = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
            "providers": [provider("cloud", plugin)]});
        private_file(&config, &config_of.to_string());
    };
    write(&old);
    let serve = format!(
        "CREDBROKER_LOG=debug {PROGRAM} serve --config {} --socket {} & sleep 600",
        config.display(),
        socket.display()
    );
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &serve, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut terminal = terminal.stderr(Stdio::null()).spawn().unwrap();
    until("it listens", || UnixStream::connect(&socket).is_ok());
    let stream = UnixStream::connect(&socket).unwrap();
    let pid = rustix::net::sockopt::socket_peercred(&stream).unwrap().pid;
    drop(stream);
    // The terminal's other end is closed with it.
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let line = |text: &str| String::from_utf8_lossy(&shim(&socket).stdout).contains(text);
    assert!(line("old"));
    write(&new);
    until("the changed file is active", || line("new"));
    assert!(rustix::process::test_kill_process(pid).is_ok());
    kill_process(pid, Signal::TERM).unwrap();
    until("it ends", || UnixStream::connect(&socket).is_err());
}

/// As `Type=notify` with `ExecReload=` needs it, and `Type=notify-reload`.
#[test]
fn the_service_manager_hears_when_a_reload_begins_and_ends() {
    let directory = private_directory();
    let path = directory.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let plugin = prints("t");
    let broker = Broker::builder(PROGRAM)
        .providers(&json!([provider("cloud", &plugin)]))
        .env("NOTIFY_SOCKET", &path)
        .start();
    let next = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(next().trim_end(), "READY=1");
    kill_process(Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap(), Signal::HUP).unwrap();
    let reloading = next();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(next().trim_end(), "READY=1");
}
