//! Other users of this machine. Needs root, to change the user.

use std::{
    fs,
    os::unix::{fs::MetadataExt as _, fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use credbroker_test_support::{FakePlugin, Kubeconfig, private_directory, private_file};
use serde_json::json;
use tempfile::TempDir;

use crate::programs::{broker, shim};

/// A user that is neither root nor `nobody`.
const OTHER: u32 = 65_533;

fn require_root() {
    let root = rustix::process::geteuid().is_root();
    assert!(root, "these tests start programs as another user, so they must be run as root");
}

/// A directory that all users can read, with a copy of `program` that all users can run.
fn with_program(program: &Path) -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("program");
    // By another process: a file that this one has open for writing, even in a child about to exec, cannot be run.
    let installed = Command::new("install").arg("--mode=0755").args([program, &copy]).status().unwrap();
    assert!(installed.success());
    (directory, copy)
}

/// A configuration with one provider. All users can read it, and connect to its socket.
fn config(directory: &Path, plugin: &FakePlugin) -> std::path::PathBuf {
    let config = directory.join("config.yaml");
    let mut stanza = plugin.exec_stanza();
    stanza["provideClusterInfo"] = json!(false);
    let text = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "listen": {"mode": "0666"},
        "limits": {"connections": 2},
        "providers": [{"name": "cloud", "execConfig": stanza}],
    });
    fs::write(&config, text.to_string()).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    config
}

struct Serving(std::process::Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn serve(command: &mut Command, socket: &Path) -> Serving {
    let child = Serving(command.env_clear().stdin(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < deadline, "no broker");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn another_user_is_denied_by_the_kernels_word_and_root_is_not() {
    require_root();
    let plugin = FakePlugin::builder().token("t").build();
    let (directory, program) = with_program(&shim());
    let socket = directory.path().join("credbroker.sock");
    let config = config(directory.path(), &plugin);
    let _broker = serve(
        Command::new(broker()).args(["serve", "--socket"]).arg(&socket).arg("--config").arg(config),
        &socket,
    );
    let ask = |uid: u32| {
        let mut command = Command::new(&program);
        command.args(["--provider", "cloud", "--socket"]).arg(&socket).env_clear().uid(uid).gid(uid);
        command.output().unwrap()
    };
    let denied = ask(OTHER);
    let stderr = String::from_utf8_lossy(&denied.stderr);
    assert_eq!(denied.status.code(), Some(77), "{stderr}");
    assert!(stderr.contains("PEER_DENIED") && stderr.contains("65533"), "{stderr}");
    assert!(denied.stdout.is_empty() && plugin.runs() == 0);
    assert!(ask(0).status.success());
}

#[test]
fn a_user_who_may_not_ask_takes_no_place_of_those_who_may() {
    require_root();
    let plugin = FakePlugin::builder().token("t").build();
    let (directory, program) = with_program(&shim());
    let socket = directory.path().join("credbroker.sock");
    let config = config(directory.path(), &plugin);
    let _broker = serve(
        Command::new(broker()).args(["serve", "--socket"]).arg(&socket).arg("--config").arg(config),
        &socket,
    );
    let other = std::thread::spawn({
        let socket = socket.clone();
        move || {
            let other = rustix::process::Uid::from_raw(OTHER);
            rustix::thread::set_thread_res_uid(other, other, other).unwrap(); // of this thread only
            (0..8).map(|_| UnixStream::connect(&socket).unwrap()).collect::<Vec<_>>()
        }
    });
    let held = other.join().unwrap();
    let answer = Command::new(&program)
        .args(["--provider", "cloud", "--timeout", "3s", "--socket"])
        .arg(&socket)
        .env_clear()
        .output()
        .unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    drop(held);
}

/// As in a container, where the broker is the first process: it inherits what plugins leave behind.
#[test]
fn the_first_process_of_a_container_leaves_no_zombies() {
    require_root();
    let plugin = FakePlugin::script("sleep 600 >/dev/null 2>&1 & exit 1");
    let directory = private_directory();
    let config = config(directory.path(), &plugin);
    let socket = directory.path().join("credbroker.sock");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(broker()).args(["serve", "--socket"]).arg(&socket);
    let unshare = serve(command.arg("--config").arg(config), &socket);
    let failed =
        Command::new(shim()).args(["--provider", "cloud", "--socket"]).arg(&socket).output().unwrap();
    assert!(String::from_utf8_lossy(&failed.stderr).contains("PLUGIN_EXIT"), "{failed:?}");
    let children = |pid: u32| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    };
    let first = children(unshare.0.id());
    assert_eq!((first.len(), plugin.runs()), (1, 1));
    assert_eq!(children(first[0]), [0; 0], "all were reaped");
}

/// As a sidecar's client, which runs in another container: there the broker's process has no number.
#[test]
fn a_shim_in_another_pid_namespace_trusts_a_broker_of_the_same_user() {
    require_root();
    let plugin = FakePlugin::builder().token("t").build();
    let directory = private_directory();
    let config = config(directory.path(), &plugin);
    let socket = directory.path().join("credbroker.sock");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(broker()).args(["serve", "--socket"]).arg(&socket);
    let _broker = serve(command.arg("--config").arg(config), &socket);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(shim()).args(["--provider", "cloud", "--socket"]);
    let answer = command.arg(&socket).env_clear().output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
}

/// A plugin runs as the broker's uid: it must not be able to read the broker's memory.
#[test]
fn the_broker_is_not_dumpable() {
    require_root();
    let plugin = FakePlugin::builder().token("t").build();
    let (directory, program) = with_program(broker());
    let config = config(directory.path(), &plugin);
    let home = private_directory();
    std::os::unix::fs::chown(home.path(), Some(OTHER), Some(OTHER)).unwrap();
    let socket = home.path().join("credbroker.sock");
    let mut command = Command::new(program);
    command.args(["serve", "--socket"]).arg(&socket).arg("--config").arg(config).uid(OTHER).gid(OTHER);
    let broker = serve(&mut command, &socket);
    let owner = |file: &str| fs::metadata(format!("/proc/{}/{file}", broker.0.id())).unwrap().uid();
    // The kernel gives these files of a process that is not dumpable to root.
    assert_eq!((owner("environ"), owner("mem")), (0, 0));
    let limits = fs::read_to_string(format!("/proc/{}/limits", broker.0.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}

/// A container can share the broker's user and socket; its files are not the broker's.
#[test]
fn a_caller_in_another_namespace_selects_an_identity_and_names_no_files() {
    require_root();
    let plugin =
        FakePlugin::builder().token_from_shell("\"${AWS_PROFILE-none}:${AWS_CONFIG_FILE-none}\"").build();
    let directory = private_directory();
    let kubeconfig = directory.path().join("config");
    let cluster = json!({"server": "https://cluster.example"});
    let users = Kubeconfig::new().cluster("c", &cluster).exec_user("rel", &plugin.exec_stanza());
    users.context("x", "c", "rel").write(&kubeconfig);
    let config = directory.path().join("config.yaml");
    let text = json!({
        "apiVersion": "credbroker.io/v1alpha1",
        "kind": "BrokerConfig",
        "kubeconfigs": [kubeconfig],
    });
    private_file(&config, &text.to_string());
    let run = |unshare: &[&str], program: &Path| {
        let mut command = Command::new("unshare");
        command.args(unshare).arg(program).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command
    };
    let ask = |socket: &Path, unshare: &[&str], name: &str, value: &str| {
        let mut command = run(unshare, &shim());
        command.args(["--provider", "rel", "--socket"]).arg(socket).env(name, value).output().unwrap()
    };
    let token = |output: &std::process::Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["status"]["token"].as_str().unwrap().to_owned()
    };
    let assert_refused = |socket: &Path, unshare: &[&str]| {
        assert_eq!(token(&ask(socket, unshare, "AWS_PROFILE", "dev")), "dev:none");
        let refused = ask(socket, unshare, "AWS_CONFIG_FILE", "/mine");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{stderr}");
        assert!(stderr.contains("VARIABLE_NOT_ALLOWED") && stderr.contains("AWS_CONFIG_FILE"), "{stderr}");
    };

    let socket = directory.path().join("socket");
    let mut command = run(&["--uts"], broker());
    let beside =
        serve(command.args(["serve", "--socket"]).arg(&socket).arg("--config").arg(&config), &socket);
    assert_eq!(token(&ask(&socket, &["--uts"], "AWS_CONFIG_FILE", "/mine")), "none:/mine");
    assert_refused(&socket, &["--mount"]);
    drop(beside);

    let socket = directory.path().join("socket-of-a-container");
    let mut command = run(&["--pid", "--fork", "--kill-child"], broker());
    let _broker =
        serve(command.args(["serve", "--socket"]).arg(&socket).arg("--config").arg(&config), &socket);
    assert_refused(&socket, &["--uts"]);
}
