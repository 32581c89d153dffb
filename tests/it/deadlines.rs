//! The commands of the CLI against something that listens and is of no use.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Output, Stdio},
};

use credbroker_test_support::private_directory;

/// Every command that asks a broker.
const COMMANDS: [&[&str]; 7] = [
    &["status"],
    &["refresh", "p"],
    &["evict", "--all"],
    &["clusters"],
    &["kubeconfig", "fleet"],
    &["kubeconfig", "proxy"],
    &["get", "p"],
];

/// All of them in parallel, with `more` arguments.
fn outcomes(socket: &Path, more: &[&str]) -> Vec<(String, Output)> {
    let commands = COMMANDS.map(|command| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_credbroker"));
        process.args(command).args(more).arg("--socket").arg(socket).env_clear();
        let process = process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (command.join(" "), process.spawn().unwrap())
    });
    commands.into_iter().map(|(name, process)| (name, process.wait_with_output().unwrap())).collect()
}

#[test]
fn a_peer_that_accepts_and_sends_nothing_is_not_a_broker() {
    let directory = private_directory();
    let socket = directory.path().join("broker.sock");
    let _accepts = UnixListener::bind(&socket).unwrap();
    for (command, output) in outcomes(&socket, &[]) {
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(69), "{command}: {text}");
        assert!(text.contains("no broker answers on"), "{command}: {text}");
    }
}

#[test]
fn a_broker_that_never_answers_is_left_at_the_deadline() {
    let directory = private_directory();
    let socket = directory.path().join("broker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap(); // SETTINGS
            std::thread::spawn(move || drop(stream.read_to_end(&mut Vec::new())));
        }
    });
    for (command, output) in outcomes(&socket, &["--timeout", "1s"]) {
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(75), "{command}: {text}");
        assert!(text.contains("no answer within 1s"), "{command}: {text}");
        assert!(text.contains("wait longer with --timeout"), "{command}: {text}");
        let is_refresh = command.starts_with("refresh");
        assert_eq!(text.contains("the plugin runs continue"), is_refresh, "{command}: {text}");
    }
}
