//! A broker that the shim starts, where `credbroker setup` left its mark. The broker is a script that records its process.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::geteuid;
use serde_json::json;
use tempfile::TempDir;

use crate::{broker::set_mode, shim::text};

const USER: u32 = 1001;

/// A person without systemd.
struct Home {
    directory: TempDir,
}

impl Home {
    /// `None`, and a word about it, where this process cannot act as another user.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can act as other users");
            return None;
        }
        let home = Self { directory: credbroker_test_support::private_directory() };
        set_mode(home.directory.path(), 0o755);
        for directory in ["bin", "run", ".config", ".config/credbroker"] {
            fs::create_dir(home.path(directory)).unwrap();
            set_mode(&home.path(directory), 0o755);
            chown(home.path(directory), Some(USER), Some(USER)).unwrap();
        }
        fs::copy(env!("CARGO_BIN_EXE_credbroker-exec"), home.path("bin/shim")).unwrap();
        set_mode(&home.path("bin/shim"), 0o755);
        let record = "exec 2>&1; cd \"$HOME/run\"; ls -l /proc/$$/fd > fd; env > env; cat /proc/$$/stat > stat; echo \"$@\" > args; readlink /proc/$PPID/cwd > /dev/null; echo log line";
        let script = format!("#!/bin/sh\npwd > \"$HOME/run/cwd\"\n{record}\n: > done\n");
        home.write("bin/broker", &script, 0o755);
        home.mark(&home.path("bin/broker"));
        Some(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, contents: &str, mode: u32) {
        fs::write(self.path(name), contents).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        chown(self.path(name), Some(USER), Some(USER)).unwrap();
    }

    fn mark(&self, program: &Path) {
        let home = self.directory.path();
        let environment = json!({"HOME": home, "XDG_RUNTIME_DIR": self.path("run"), "PATH": "/usr/bin:/bin"});
        let mark = json!({"program": program, "log": self.path("run/log"), "environment": environment});
        self.write(".config/credbroker/start-on-demand.json", &mark.to_string(), 0o600);
    }

    /// The shim as the person runs it, with a descriptor and a variable that are the caller's.
    fn shim(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        let script = "exec 9</dev/null; exec \"$0\" --provider gke --timeout 1 \"$@\"";
        command.args(["-c", script]).arg(self.path("bin/shim")).env_clear();
        command.env("HOME", self.directory.path()).env("XDG_RUNTIME_DIR", self.path("run"));
        command.env("SECRET", "c4n4ry").stdin(Stdio::null()).uid(USER).gid(USER);
        command
    }

    fn was_started(&self) -> bool {
        // The shim has waited for a second after it started the script.
        self.path("run/cwd").exists()
    }

    fn read(&self, name: &str) -> String {
        while !self.path("run/done").exists() {
            std::thread::yield_now();
        }
        fs::read_to_string(self.path("run").join(name)).unwrap()
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
    let Some(home) = Home::new() else { return };
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
    let mode = fs::metadata(home.path("run/log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn without_the_mark_or_with_a_named_socket_or_broker_nothing_is_started() {
    let Some(home) = Home::new() else { return };
    complaint(home.shim().args(["--socket"]).arg(home.path("run/other.sock")));
    complaint(home.shim().args(["--server-uid", "1001"]));
    complaint(home.shim().env("CREDBROKER_SOCKET", home.path("run/other.sock")));
    complaint(home.shim().env("CREDBROKER_SERVER_UID", "1001"));
    complaint(home.shim().env("XDG_RUNTIME_DIR", home.path("bin")));
    let said = complaint(home.shim().env_remove("XDG_RUNTIME_DIR"));
    assert!(said.contains("set it to /run/user/UID"), "{said}");
    fs::remove_file(home.path(".config/credbroker/start-on-demand.json")).unwrap();
    complaint(&mut home.shim());
    assert!(!home.was_started());
}

/// Root's broker is the system's.
#[test]
fn a_mark_has_no_effect_for_root() {
    let Some(home) = Home::new() else { return };
    complaint(home.shim().uid(0).gid(0));
    assert!(!home.was_started());
}

#[test]
fn what_other_users_can_change_is_not_started() {
    let Some(home) = Home::new() else { return };
    let refusal = |home: &Home| {
        let said = complaint(&mut home.shim());
        assert!(said.contains("cannot be started") && said.contains("credbroker setup"), "{said}");
        assert!(!home.was_started());
        said
    };
    for (name, mode) in [
        ("bin/broker", 0o775),
        ("bin/broker", 0o757),
        ("bin", 0o777),
        (".config/credbroker/start-on-demand.json", 0o606),
    ] {
        let before = fs::metadata(home.path(name)).unwrap().permissions();
        set_mode(&home.path(name), mode);
        assert!(refusal(&home).contains("other users can change or replace it"));
        fs::set_permissions(home.path(name), before).unwrap();
    }
    chown(home.path("bin/broker"), Some(2001), None).unwrap();
    assert!(refusal(&home).contains("other users can change or replace it"));
    home.mark(Path::new("bin/broker"));
    assert!(refusal(&home).contains("it is not there"));
    home.write(".config/credbroker/start-on-demand.json", "{}", 0o600);
    assert!(refusal(&home).contains("not a file of `credbroker setup`"));
}

#[test]
fn while_another_shim_starts_the_broker_no_second_one_is_started() {
    let Some(home) = Home::new() else { return };
    let mark = fs::File::open(home.path(".config/credbroker/start-on-demand.json")).unwrap();
    rustix::fs::flock(&mark, rustix::fs::FlockOperation::LockExclusive).unwrap();
    complaint(&mut home.shim());
    assert!(!home.was_started());
}
