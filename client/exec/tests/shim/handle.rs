//! Handles of the proxy, from a socket whose answers the test chooses.

use std::{
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    process::Command,
    thread::JoinHandle,
};

use tempfile::TempDir;

use crate::shim::{bare, complaint, document};

/// A proxy that answers once, and returns what it was asked.
struct Proxy {
    directory: TempDir,
    asked: JoinHandle<String>,
}

impl Proxy {
    fn answering(answer: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut part = [0; 512];
                let read = stream.read(&mut part).unwrap();
                asked.extend_from_slice(&part[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        });
        Self { directory, asked }
    }

    fn asking(&self) -> Command {
        let socket = self.directory.path().join("s");
        bare(&["--proxy", "/clusters/fleet/prod", "--socket", socket.to_str().unwrap()])
    }
}

#[test]
fn a_handle_is_printed_as_a_token_that_ends_a_little_earlier() {
    let proxy = Proxy::answering("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na-handle 4000000000 3600\n");
    let printed = document(&mut proxy.asking());
    assert_eq!(printed["status"]["token"], "a-handle");
    assert_eq!(printed["status"]["expirationTimestamp"], "2096-10-02T07:06:10Z", "30 s before its end");
    let asked = proxy.asked.join().unwrap();
    assert!(asked.starts_with("POST /clusters/fleet/prod HTTP/1.1\r\n"), "{asked}");
}

#[test]
fn what_the_proxy_refuses_is_said_and_what_is_not_the_proxy_too() {
    for (answer, code, needle) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\nthis target does not exist", 77, "this target does not exist"),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\nnot yet", 1, "not yet"),
        ("HTTP/1.1 200 OK\r\n\r\na-handle", 1, "is not the proxy"),
        ("SSH-2.0-x\r\n\r\n", 1, "is not the proxy"),
        ("", 1, "is not the proxy"),
    ] {
        let proxy = Proxy::answering(answer);
        let line = complaint(&mut proxy.asking(), code);
        assert!(line.contains(needle), "{answer:?}: {line}");
    }
    let line = complaint(&mut bare(&["--proxy", "/clusters/a/b", "--socket", "/nowhere/s"]), 69);
    assert!(line.contains("no proxy answers on /nowhere/s") && line.contains("serve --proxy"), "{line}");
}

#[test]
fn the_bridge_is_a_command_of_the_brokers_program_which_it_becomes() {
    let directory = tempfile::tempdir().unwrap();
    let shim = directory.path().join("credbroker-exec");
    fs::copy(bare(&[]).get_program(), &shim).unwrap();
    let bridge = || {
        let mut command = Command::new(&shim);
        command.env_clear().env("PATH", directory.path().join("bin")).args([
            "bridge",
            "--listen",
            "127.0.0.1:0",
        ]);
        command.output().unwrap()
    };
    let alone = bridge();
    assert_eq!(alone.status.code(), Some(127));
    let line = String::from_utf8(alone.stderr).unwrap();
    assert!(line.contains("put it in the same directory"), "{line}");
    for path in ["bin/credbroker", "credbroker"] {
        let program = directory.path().join(path);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "#!/bin/sh\necho \"$0 $*\"\n").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let expected = format!("{} bridge --listen 127.0.0.1:0\n", program.display());
        assert_eq!(String::from_utf8(bridge().stdout).unwrap(), expected);
    }
}
