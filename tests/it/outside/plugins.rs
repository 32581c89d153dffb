//! What a plugin inherits from the broker's parent, and what is left of it after the broker.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use super::until;
use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

fn get(socket: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["get", "cloud", "--socket"]).arg(socket).env_clear();
    command.output().unwrap()
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// As a shell starts the broker with `nohup` and open files.
#[test]
fn descriptors_and_ignored_signals_of_the_brokers_parent_reach_no_plugin() {
    let plugin = FakePlugin::script(
        "ls /proc/self/fd > \"$dir/descriptors\"; cat /proc/self/status > \"$dir/status\"; exit 1",
    );
    let script =
        format!("trap '' HUP INT QUIT USR1 USR2 TERM PIPE CHLD WINCH; exec {PROGRAM} \"$@\" 7<&0 9<&0");
    let parent = FakePlugin::script(&script);
    let broker = Broker::builder(parent.path()).providers(&json!([provider("cloud", &plugin)])).start();
    assert!(!get(&broker.socket()).status.success(), "the plugin fails");
    assert_eq!(
        lines(&plugin.dir().join("descriptors")),
        ["0", "1", "2", "3"],
        "3 is the directory that ls reads"
    );
    let status = lines(&plugin.dir().join("status"));
    let status: BTreeMap<_, _> = status.iter().filter_map(|line| line.split_once(":\t")).collect();
    let mask = |name: &str| u64::from_str_radix(status[name], 16).unwrap();
    // The C library keeps signals 32 and 33 for itself.
    assert_eq!((mask("SigBlk"), mask("SigIgn") & !(3 << 31)), (0, 0));
}

#[test]
fn nothing_of_a_run_is_left_when_the_broker_is_killed() {
    let plugin = FakePlugin::script(
        "(setsid sh -c 'echo $$ > \"$0/daemon\"; exec sleep 300' \"$dir\" >/dev/null 2>&1 </dev/null &)
        while [ ! -s \"$dir/daemon\" ]; do sleep 0.01; done
        echo $$ > \"$dir/plugin\"; echo $PPID > \"$dir/launcher\"; trap '' TERM; while :; do sleep 1; done",
    );
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let mut command = Command::new(PROGRAM);
    command.args(["get", "cloud", "--socket"]).arg(broker.socket()).env_clear();
    let mut waits = command.spawn().unwrap();
    until("the plugin runs", || {
        fs::read_to_string(plugin.dir().join("launcher")).is_ok_and(|id| id.ends_with('\n'))
    });
    let files = ["daemon", "plugin", "launcher"];
    let ids = files.map(|file| fs::read_to_string(plugin.dir().join(file)).unwrap().trim().to_owned());
    let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    for (file, id) in files.iter().zip(ids) {
        let is_gone = || {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
        };
        until(file, is_gone);
    }
    waits.wait().unwrap();
}

/// An upgrade replaces the file of a broker that runs.
#[test]
fn a_broker_whose_file_was_replaced_or_removed_starts_its_own_launchers() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (program, newer) = (directory.path().join("credbroker"), directory.path().join("newer"));
    fs::hard_link(PROGRAM, &program).unwrap();
    fs::write(&newer, "#!/bin/sh\nexit 99\n").unwrap();
    fs::set_permissions(&newer, Permissions::from_mode(0o755)).unwrap();
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = Broker::builder(&program).providers(&json!([provider("cloud", &plugin)])).start();
    let runs = |count| {
        assert!(get(&broker.socket()).status.success());
        let evict = Command::new(PROGRAM).args(["evict", "--all", "--socket"]).arg(broker.socket()).output();
        assert!(evict.unwrap().status.success());
        assert_eq!(plugin.runs(), count);
    };
    runs(1);
    fs::rename(newer, &program).unwrap();
    runs(2);
    fs::remove_file(program).unwrap();
    runs(3);
}

/// As manifests mount the volume with the plugins: others can write it, but not through this mount.
#[test]
fn modes_do_not_count_on_a_mount_that_is_read_only_for_the_broker() {
    let directory = credbroker_test_support::private_directory();
    let mounted = directory.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let answer =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
    let path = mounted.join("plugin");
    fs::write(&path, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
    for path in [&mounted, &path] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let stanza =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "command": path, "interactiveMode": "Never"});
    let providers = json!([{"name": "cloud", "execConfig": stanza}]);
    let failure = |broker: &Broker| String::from_utf8(get(&broker.socket()).stderr).unwrap();

    let writable = Broker::builder(PROGRAM).providers(&providers).start();
    let refused = failure(&writable);
    assert!(refused.contains("PLUGIN_NOT_ALLOWED") && refused.contains("(mode 0777)"), "{refused}");
    drop(writable);
    let in_namespace = FakePlugin::script(&format!(
        "exec unshare --mount sh -c 'mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec {PROGRAM} \"$@\"' sh \"$@\"",
        mounted.display()
    ));
    let probe = Command::new("unshare").args(["--mount", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("SKIPPED: a read-only mount needs root and unshare(1)");
        return;
    }
    let read_only = Broker::builder(in_namespace.path()).providers(&providers).start();
    assert_eq!(failure(&read_only), "");
}

/// Connects to the first argument, and leaves the connection to a child, which connects it with the first peer at the
/// second one.
const RELAY: &str = "
import os, socket, sys, threading
broker, door = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
broker.connect(sys.argv[1])
door.bind(sys.argv[2])
door.listen()
if os.fork():
    os._exit(0)
peer, _ = door.accept()
def relay(one, other):
    while data := one.recv(65536):
        other.sendall(data)
threading.Thread(target=relay, args=(peer, broker), daemon=True).start()
relay(broker, peer)
";

/// Writes [`RELAY`] to a directory; `None`: this machine has no Python.
fn relay(directory: &Path) -> Option<String> {
    let file = directory.join("relay.py");
    fs::write(&file, RELAY).unwrap();
    let python = ["/usr/bin/python3", "/bin/python3"].into_iter().find(|path| Path::new(path).exists());
    if python.is_none() {
        println!("SKIPPED: the client is a Python program");
    }
    Some(format!("{} -I {}", python?, file.display()))
}

/// It has ended before the broker looks at it.
#[test]
fn a_client_that_leaves_its_connection_to_a_child_is_served_during_a_run() {
    let (cloud, slow) = (
        FakePlugin::builder().token("t").expires_in(3600).build(),
        FakePlugin::script(": > $dir/started; while [ ! -e $dir/end ]; do sleep 0.01; done; exit 1"),
    );
    let Some(relay) = relay(cloud.dir()) else { return };
    let providers = json!([provider("cloud", &cloud), provider("slow", &slow)]);
    let broker = Broker::builder(PROGRAM).providers(&providers).start();
    let mut waits = Command::new(PROGRAM);
    waits
        .args(["get", "slow", "--socket"])
        .arg(broker.socket())
        .env_clear()
        .stderr(std::process::Stdio::null());
    let mut waits = waits.spawn().unwrap();
    until("a run is in progress", || slow.dir().join("started").exists());

    let pid = rustix::process::Pid::from_raw(broker.pid().cast_signed()).unwrap();
    let door = cloud.dir().join("door");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let command = format!("{relay} {} {}", broker.socket().display(), door.display());
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let served = get(&door);
    assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    fs::write(slow.dir().join("end"), "").unwrap();
    assert!(!waits.wait().unwrap().success());
}

/// The same by a plugin.
#[test]
fn a_plugin_that_leaves_its_connection_to_a_child_gets_nothing() {
    let plugin = FakePlugin::script(&format!(
        "kill -STOP $(cat $dir/broker)
        $(cat $dir/relay) $(cat $dir/socket) $dir/door > /dev/null 2>&1
        kill -CONT $(cat $dir/broker)
        env -i {PROGRAM} get cloud --socket $dir/door > $dir/said 2>&1
        exit 1"
    ));
    let Some(relay) = relay(plugin.dir()) else { return };
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    fs::write(plugin.dir().join("relay"), relay).unwrap();
    fs::write(plugin.dir().join("socket"), broker.socket().to_str().unwrap()).unwrap();
    fs::write(plugin.dir().join("broker"), broker.pid().to_string()).unwrap();
    assert!(!get(&broker.socket()).status.success());
    let said = fs::read_to_string(plugin.dir().join("said")).unwrap();
    assert!(said.contains("RECURSION"), "{said}");
    assert_eq!(plugin.runs(), 1);
}
