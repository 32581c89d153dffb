//! Root at a terminal, after sudo: the broker of the user who called it. The client is a shell, which starts the shim as kubectl
//! does.

use std::{
    fs,
    os::unix::{fs::chown, net::UnixListener},
    path::{Path, PathBuf},
};

use credbroker_client::Socket;
use credbroker_exec::original_line;
use credbroker_proto::Reason;
use credbroker_stanza::Definition;
use credbroker_test_support::{Home, Terminal, as_user};
use rustix::process::geteuid;

use crate::{
    broker::{Answer, Broker, set_mode},
    failures::status,
    shim::env_of,
};

const SHIM: &str = env!("CARGO_BIN_EXE_credbroker-exec");
const STANZA: &str = "--provider gke --api-version v1 --env AWS_PROFILE -- plugin";

/// The broker of a user, where sudo leaves no variable that names it.
struct Users {
    uid: u32,
    broker: Broker,
    runtime_directory: PathBuf,
}

impl Drop for Users {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.runtime_directory));
    }
}

impl Users {
    /// `None`, and a word about it, where this process cannot act as others. `server` runs the broker.
    fn new(uid: u32, server: u32, answer: Answer) -> Option<Self> {
        if !geteuid().is_root() || Path::new(Socket::SYSTEM).exists() {
            println!("SKIPPED: this needs root, and a machine without a broker of the system");
            return None;
        }
        let runtime_directory = PathBuf::from(format!("/run/user/{uid}"));
        let directory = runtime_directory.join("credbroker");
        fs::create_dir_all(&directory).unwrap();
        for path in [&runtime_directory, &directory] {
            set_mode(path, 0o700);
            chown(path, Some(server), Some(server)).unwrap();
        }
        let listener = as_user(server, || UnixListener::bind(directory.join("credbroker.sock")).unwrap());
        chown(&runtime_directory, Some(uid), Some(uid)).unwrap();
        chown(&directory, Some(uid), Some(uid)).unwrap();
        let mut broker = Broker::absent();
        broker.serve(listener, answer);
        Some(Self { uid, broker, runtime_directory })
    }

    /// The shim at a terminal, whose parent has this `SUDO_UID`.
    fn sudo(&self, command: &str, home: &Path) -> Terminal {
        let uid = self.uid.to_string();
        let variables = [
            ("SUDO_UID", uid.as_ref()),
            ("HOME", home.as_os_str()),
            ("AWS_PROFILE", "prod".as_ref()),
            ("CLOUDSDK_CORE_ACCOUNT", "of-root".as_ref()),
            ("DISPLAY", ":1".as_ref()),
            ("TERM", "xterm".as_ref()),
        ];
        Terminal::start("/bin/sh", ["-c", &format!("{command}; exit $?")], variables)
    }
}

#[test]
fn the_broker_of_the_user_gets_no_variable_of_root() {
    let Some(users) = Users::new(61_231, 61_231, Answer::token("of-user")) else { return };
    let (status, stdout, shown) = users.sudo(&format!("{SHIM} {STANZA}"), Path::new("/nonexistent")).end();
    assert!(status.success() && stdout.contains("of-user"), "{stdout}{shown}");
    assert_eq!(shown.trim(), "credbroker-exec: asks the broker of uid 61231, who called sudo");
    let request = users.broker.request();
    assert_eq!(env_of(&request), []);
    assert!(request.session.is_empty(), "{request:?}");
}

#[test]
fn a_stanza_or_a_process_without_a_terminal_does_not_choose_the_user() {
    let Some(users) = Users::new(61_232, 61_232, Answer::token("of-user")) else { return };
    let none = Path::new("/nonexistent");
    let set = format!("env -u SUDO_UID sh -c 'env SUDO_UID=61232 {SHIM} --timeout 0.3s {STANZA}; exit $?'");
    let other = format!("env OTHER=1 {SHIM} --timeout 0.3s {STANZA}");
    let named = format!("{SHIM} --timeout 0.3s --env SUDO_UID {STANZA}");
    let script = format!("{SHIM} --timeout 0.3s {STANZA} 2> /dev/null");
    for command in [&set, &other, &named, &script] {
        let (status, stdout, shown) = users.sudo(command, none).end();
        assert_eq!((status.code(), stdout.as_str()), (Some(69), ""), "{command}: {shown}");
    }
    assert_eq!(users.broker.requests().len(), 0);
}

#[test]
fn a_broker_that_runs_as_another_user_is_not_trusted() {
    let Some(users) = Users::new(61_233, 0, Answer::token("of-root")) else { return };
    let (status, stdout, shown) = users.sudo(&format!("{SHIM} {STANZA}"), Path::new("/nonexistent")).end();
    assert_eq!((status.code(), stdout.as_str()), (Some(77), ""), "{shown}");
    assert_eq!(users.broker.requests().len(), 0);
}

#[test]
fn where_root_may_not_use_it_the_plugin_that_root_recorded_runs() {
    let denied = || Answer::Say(Err(status(Reason::PeerDenied, "uid 0 may not use this broker")));
    let Some(users) = Users::new(61_234, 61_234, denied()) else { return };
    let home = Home::own();
    fs::create_dir_all(home.path(".local/state/credbroker")).unwrap();
    for path in [".local", ".local/state", ".local/state/credbroker"] {
        home.give(path, 0o700);
    }
    let command = format!("{SHIM} {STANZA}");
    let (code, _, shown) = users.sudo(&command, home.directory()).end();
    assert_eq!(code.code(), Some(77), "{shown}");
    home.script("plugin", "echo of-plugin");
    let env = vec![(&b"AWS_PROFILE"[..], Some(&b"prod"[..]))];
    let definition = Definition { api_version: "v1", command: b"plugin", env, ..Definition::default() };
    let line = original_line(&definition.digest(), &home.path("plugin")).unwrap();
    home.write(".local/state/credbroker/originals", line, 0o600);
    let (code, stdout, shown) = users.sudo(&command, home.directory()).end();
    assert_eq!((code.code(), stdout.as_str()), (Some(0), "of-plugin\n"), "{shown}");
    assert!(shown.contains("plugin runs without it"), "{shown}");
}
