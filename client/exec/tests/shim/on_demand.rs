//! A broker that the shim starts, where `credbroker setup` left its mark. The broker is a script that records its process.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use credbroker_test_support::Home;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::json;

use crate::{broker::set_mode, shim::text};

const USER: u32 = 1001;

const MARK: &str = ".config/credbroker/start-on-demand.json";

/// A user without systemd.
struct Person(Home);

impl Person {
    /// `None`, and a word about it, where this process cannot act as `user`.
    fn new(user: u32) -> Option<Self> {
        let home = Home::of(user, &["bin", "run", "run/credbroker", ".config", ".config/credbroker"])?;
        home.install("bin/shim", fs::read(env!("CARGO_BIN_EXE_credbroker-exec")).unwrap());
        let record = "exec 2>&1; cd \"$HOME/run\"; ls -l /proc/$$/fd > fd; env > env; cat /proc/$$/stat > stat; echo \"$@\" > args; readlink /proc/$PPID/cwd > /dev/null; echo log line";
        home.script("bin/broker", &format!("pwd > \"$HOME/run/cwd\"\n{record}\n: > done"));
        let person = Self(home);
        person.mark(&person.0.path("bin/broker"));
        Some(person)
    }

    fn mark(&self, program: &Path) {
        let environment = json!({"HOME": self.0.directory(), "XDG_RUNTIME_DIR": self.0.path("run"), "PATH": "/usr/bin:/bin"});
        let mark = json!({"program": program, "log": self.0.path("run/log"), "environment": environment});
        self.0.write(MARK, mark.to_string(), 0o600);
    }

    /// The shim as the user runs it, with a descriptor and a variable that are the caller's.
    fn shim(&self) -> Command {
        let mut command = self.0.command("/bin/sh");
        let script = "exec 9</dev/null; exec \"$0\" --provider gke --timeout 1s \"$@\"";
        command.args(["-c", script]).arg(self.0.path("bin/shim")).env("SECRET", "c4n4ry");
        command
    }

    fn was_started(&self) -> bool {
        // The shim has waited for a second after it started the script.
        self.0.path("run/cwd").exists()
    }

    fn read(&self, name: &str) -> String {
        while !self.0.path("run/done").exists() {
            std::thread::yield_now();
        }
        self.0.read(&format!("run/{name}"))
    }
}

/// Runs the shim, which finds no broker in the end; returns what it says.
fn complaint(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(69), ""));
    text(&output.stderr)
}

#[test]
fn a_recorded_broker_is_started_with_nothing_of_the_caller() {
    let Some(home) = Person::new(USER) else { return };
    complaint(&mut home.shim());
    assert!(home.was_started());
    assert_eq!(home.read("args").trim(), "serve --detached");
    assert_eq!(home.read("cwd").trim(), "/");
    let variables = home.read("env");
    let mut names: Vec<_> = variables.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name)); // the shell's own
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PATH", "XDG_RUNTIME_DIR"], "{variables}");
    let descriptors = home.read("fd");
    assert!(!descriptors.contains(" 9 ->") && descriptors.contains("0 -> /dev/null"), "{descriptors}");
    assert_eq!(home.read("log"), "log line\n");
    let mode = fs::metadata(home.0.path("run/log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn without_the_mark_or_with_a_named_socket_or_broker_nothing_is_started() {
    let Some(home) = Person::new(USER) else { return };
    complaint(home.shim().args(["--socket"]).arg(home.0.path("run/other.sock")));
    complaint(home.shim().args(["--broker-uid", "1001"]));
    complaint(home.shim().env("CREDBROKER_SOCKET", home.0.path("run/other.sock")));
    complaint(home.shim().env("CREDBROKER_BROKER_UID", "1001"));
    complaint(home.shim().env("XDG_RUNTIME_DIR", home.0.path("bin")));
    let said = complaint(home.shim().env_remove("XDG_RUNTIME_DIR"));
    assert!(said.contains("set it to /run/user/UID"), "{said}");
    fs::remove_file(home.0.path(MARK)).unwrap();
    complaint(&mut home.shim());
    assert!(!home.was_started());
}

/// Root's broker is the system's.
#[test]
fn a_mark_has_no_effect_for_root() {
    let Some(home) = Person::new(0) else { return };
    complaint(&mut home.shim());
    assert!(!home.was_started());
}

#[test]
fn what_other_users_can_change_is_not_started() {
    let Some(home) = Person::new(USER) else { return };
    let refusal = |home: &Person| {
        let said = complaint(&mut home.shim());
        assert!(said.contains("cannot be started") && said.contains("credbroker setup"), "{said}");
        assert!(!home.was_started());
        said
    };
    for (name, mode) in
        [("bin/broker", 0o775), ("bin/broker", 0o757), ("bin", 0o777), (MARK, 0o606), ("run", 0o777)]
    {
        let path = home.0.path(name);
        let before = fs::metadata(&path).unwrap().permissions();
        set_mode(&path, mode);
        let said = refusal(&home);
        assert!(said.contains("decide what is started"), "{said}");
        assert!(said.contains(&format!("`chmod go-w {}`", path.display())), "{said}");
        fs::set_permissions(path, before).unwrap();
    }
    chown(home.0.path("bin/broker"), Some(2001), None).unwrap();
    assert!(refusal(&home).contains("belongs to uid 2001, who can decide what is started"));
    home.mark(Path::new("bin/broker"));
    assert!(refusal(&home).contains("it is not there"));
    home.0.write(MARK, "{}", 0o600);
    assert!(refusal(&home).contains("not a file of `credbroker setup`"));
}

#[test]
fn nothing_is_started_for_the_runtime_directory_of_another_user() {
    let Some(home) = Person::new(USER) else { return };
    chown(home.0.path("run"), Some(2001), None).unwrap();
    let said = complaint(&mut home.shim());
    assert!(said.contains("XDG_RUNTIME_DIR is ignored"), "{said}");
    assert!(!home.was_started());
}

/// Connecting to such a listener blocks without a limit.
#[test]
fn a_listener_whose_queue_is_full_is_not_waited_for_longer_than_the_timeout() {
    let Some(home) = Person::new(USER) else { return };
    let path = home.0.path("run/credbroker/credbroker.sock");
    let (flags, kind) = (SocketFlags::NONBLOCK, SocketType::STREAM);
    let socket = || rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    let (listener, address) = (socket(), SocketAddrUnix::new(&path).unwrap());
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    home.0.give("run/credbroker/credbroker.sock", 0o600);
    let mut waiting = Vec::new();
    let refused = loop {
        let next = socket();
        match rustix::net::connect(&next, &address) {
            Ok(()) => waiting.push(next),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, rustix::io::Errno::AGAIN);
    let mut limited = home.0.command("timeout");
    limited.args(["30"]).arg(home.0.path("bin/shim")).args(["--provider", "gke", "--timeout", "1s"]);
    complaint(&mut limited);
    assert!(!home.was_started());
}

#[test]
fn while_another_shim_starts_the_broker_no_second_one_is_started() {
    let Some(home) = Person::new(USER) else { return };
    let mark = fs::File::open(home.0.path(MARK)).unwrap();
    rustix::fs::flock(&mark, rustix::fs::FlockOperation::LockExclusive).unwrap();
    complaint(&mut home.shim());
    assert!(!home.was_started());
}
