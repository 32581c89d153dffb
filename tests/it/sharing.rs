//! Brokers and clients of different users, with the real programs: groups, shared directories, namespaces and listeners.

use std::{
    fs,
    io::Write as _,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use credbroker_test_support::{directory_without_others, private_file, program_file};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const BROKER: u32 = 2001;
const CLIENT: u32 = 1001;
const GROUP: u32 = 5000;
/// The modes of a Kubernetes `emptyDir`: on disk or in memory, without and with `fsGroup`.
const EMPTY_DIRS: [u32; 4] = [0o777, 0o1777, 0o2777, 0o3777];

/// A directory that every user can reach, with the program and a plugin.
struct Place(TempDir);

impl Place {
    /// `None`, and a word about it, where this process cannot act as other users.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can act as other users");
            return None;
        }
        let Some(directory) = directory_without_others() else {
            println!("SKIPPED: there is no directory above which only root can write");
            return None;
        };
        let place = Self(directory);
        place.directory("", 0, 0o755);
        let program = place.path("credbroker");
        if fs::hard_link(PROGRAM, &program).is_err() {
            program_file(&program, fs::read(PROGRAM).unwrap());
        }
        let answer = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "shared"},
        });
        let plugin = place.path("plugin");
        program_file(&plugin, format!("#!/bin/sh\necho '{answer}'\n"));
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.path().to_owned() } else { self.0.path().join(name) }
    }

    fn directory(&self, name: &str, owner: u32, mode: u32) {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The socket `name` in the configuration, with more of `listen`.
    fn listen(&self, name: &str, more: &Value) -> Value {
        let mut listen = json!({"socket": self.path(name)});
        listen.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        listen
    }

    /// A broker of uid 2001 with these words before its own command line.
    fn broker(&self, within: &[&str], groups: &[u32], listen: &Value) -> Broker {
        self.broker_with(within, groups, listen, &Value::Null)
    }

    /// The same with access rules.
    fn broker_with(&self, within: &[&str], groups: &[u32], listen: &Value, access: &Value) -> Broker {
        let stanza = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": self.path("plugin"),
            "interactiveMode": "Never",
        });
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "listen": listen,
            "providers": [{"name": "cloud", "execConfig": stanza}],
            "access": access,
        });
        let file = self.path("config.yaml");
        private_file(&file, &config.to_string());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let words = [self.path("credbroker").to_str().unwrap().to_owned(), "serve".into(), "--config".into()];
        let words: Vec<_> = words.into_iter().chain([file.to_str().unwrap().to_owned()]).collect();
        let child = start(within, BROKER, groups, &words);
        let mut broker = Broker { child };
        let listens =
            if listen.is_array() { listen.as_array().unwrap().clone() } else { vec![listen.clone()] };
        for listen in listens {
            let socket = PathBuf::from(listen["socket"].as_str().unwrap());
            broker.wait_for(&socket);
        }
        broker
    }

    /// The shim as another user.
    fn shim(&self, within: &[&str], uid: u32, groups: &[u32], socket: &str) -> Output {
        self.shim_with(within, uid, groups, socket, &[])
    }

    /// The shim as another user who knows the uid of the broker.
    fn knowing_shim(&self, uid: u32, groups: &[u32], socket: &str) -> Output {
        self.shim_with(&[], uid, groups, socket, &["--broker-uid", &BROKER.to_string()])
    }

    fn shim_with(&self, within: &[&str], uid: u32, groups: &[u32], socket: &str, more: &[&str]) -> Output {
        let program = self.path("credbroker").to_str().unwrap().to_owned();
        let socket = self.path(socket).to_str().unwrap().to_owned();
        let words = ["shim", "--provider", "cloud", "--timeout", "20s", "--socket"].map(str::to_owned);
        let words = [program].into_iter().chain(words).chain([socket]);
        let words: Vec<_> = words.chain(more.iter().map(|&word| word.to_owned())).collect();
        start(within, uid, groups, &words).wait_with_output().unwrap()
    }
}

struct Broker {
    child: Child,
}

impl Broker {
    fn wait_for(&mut self, socket: &Path) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut log = String::new();
                std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut log).unwrap();
                panic!("the broker ended ({status}) before it listened:\n{log}");
            }
            assert!(Instant::now() < deadline, "it listens in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // `unshare --kill-child` does not end a process that has changed its user.
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            let _gone = kill_process(child, Signal::KILL);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts `words` as a user: after `within`, which may make namespaces.
fn start(within: &[&str], uid: u32, groups: &[u32], words: &[String]) -> Child {
    let groups = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    let user = ["setpriv".to_owned(), format!("--reuid={uid}"), format!("--regid={uid}"), groups];
    let all: Vec<_> = within.iter().map(|&word| word.to_owned()).chain(user).chain(words.to_vec()).collect();
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    if within.contains(&"--user") {
        map_users(&child);
    }
    // A script in `within` waits for this line; others do not read it.
    drop(child.stdin.take().unwrap().write_all(b"mapped\n"));
    child
}

/// Maps the first 65,536 users of a new user namespace to themselves, as for a pod.
fn map_users(child: &Child) {
    let proc = PathBuf::from(format!("/proc/{}", child.id()));
    let own = fs::read_link("/proc/self/ns/user").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_link(proc.join("ns/user")).is_ok_and(|found| found == own) {
        assert!(Instant::now() < deadline, "it has its own namespace");
        std::thread::sleep(Duration::from_millis(1));
    }
    for map in ["uid_map", "gid_map"] {
        fs::write(proc.join(map), "0 0 65536").unwrap();
    }
}

fn token(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["status"]["token"].as_str().unwrap().to_owned()
}

fn refused(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    stderr
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The broker denies this user, so its shim trusted the socket and was answered.
fn assert_answered(output: &Output) {
    let stderr = refused(output, 77);
    assert!(stderr.contains("PEER_DENIED"), "{stderr}");
}

#[test]
fn root_is_a_client_of_a_users_broker_in_a_directory_of_that_user() {
    let Some(place) = Place::new() else { return };
    place.directory("home", BROKER, 0o700);
    let _broker = place.broker(&[], &[], &place.listen("home/run/socket", &json!({})));
    assert_eq!(token(&place.shim(&[], 0, &[], "home/run/socket")), "shared");
    assert_eq!(token(&place.shim(&[], BROKER, &[], "home/run/socket")), "shared");
}

#[test]
fn a_group_reaches_the_socket_and_other_users_do_not() {
    let Some(place) = Place::new() else { return };
    place.directory("home", BROKER, 0o755);
    place.directory("shared", 0, 0o1777);
    for (socket, shared, folder) in [("home/run/socket", false, 0o750), ("shared/run/socket", true, 0o710)] {
        let listen = json!({"mode": "0660", "group": GROUP.to_string(), "sharedDirectory": shared});
        let _broker = place.broker(&[], &[GROUP], &place.listen(socket, &listen));
        let path = place.path(socket);
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (folder, 0o660));
        assert_answered(&place.knowing_shim(CLIENT, &[GROUP], socket));
        refused(&place.knowing_shim(CLIENT, &[], socket), 69);
    }
}

/// The broker and its client in user, PID and mount namespaces, as containers of a pod without host users.
#[test]
fn a_client_of_another_user_is_served_through_an_empty_dir_that_is_read_only_for_it() {
    let made = Command::new("unshare").args(["--user", "--mount", "--pid", "--fork", "true"]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return println!("SKIPPED: this machine does not allow new user namespaces");
    }
    for empty_dir in EMPTY_DIRS {
        let Some(place) = Place::new() else { return };
        place.directory("shared", 0, empty_dir);
        if empty_dir & 0o2000 != 0 {
            chown(place.path("shared"), None, Some(GROUP)).unwrap();
            place_mode(&place.path("shared"), empty_dir);
        }
        let shared = place.path("shared");
        let shared = shared.display();
        let namespaces = ["unshare", "--user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"];
        let container = "read -r mapped; mount -t proc proc /proc; exec \"$@\"".to_owned();
        let read_only = format!(
            "read -r mapped; mount -t proc proc /proc; mount --bind {shared} {shared} && mount -o remount,bind,ro {shared} && exec \"$@\""
        );
        let within = |script| namespaces.into_iter().chain([script, "sh"]).collect::<Vec<_>>();
        let groups: &[u32] = if empty_dir & 0o2000 != 0 { &[GROUP] } else { &[] };
        let listen =
            json!({"mode": if groups.is_empty() { "0666" } else { "0660" }, "sharedDirectory": true});
        let access =
            json!([rule("apps", &json!({"uids": [CLIENT]})), rule("own", &json!({"uids": [BROKER]}))]);
        for socket in ["shared/run/socket", "shared/broker.sock"] {
            let listen = place.listen(socket, &listen);
            let _broker = place.broker_with(&within(&container), groups, &listen, &access);
            for (script, uid) in [(&read_only, CLIENT), (&read_only, BROKER), (&container, BROKER)] {
                let client = place.shim(&within(script), uid, groups, socket);
                assert_eq!(token(&client), "shared", "{empty_dir:o} {socket}");
            }
            assert_answered(&place.shim(&within(&read_only), CLIENT + 1, groups, socket));
            // In the broker's own container the directory is writable.
            let path = place.path(socket).to_str().unwrap().to_owned();
            for (command, shown) in [("status", "cloud"), ("healthcheck", "ok")] {
                let words = ["credbroker", command, "--socket"].map(str::to_owned);
                let mut words: Vec<_> = words.into_iter().chain([path.clone()]).collect();
                words[0] = place.path("credbroker").to_str().unwrap().to_owned();
                let output = start(&within(&container), BROKER, groups, &words).wait_with_output().unwrap();
                assert!(String::from_utf8_lossy(&output.stdout).contains(shown), "{command}: {output:?}");
            }
        }
    }
}

fn place_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn rule(name: &str, peers: &Value) -> Value {
    json!({"name": name, "peers": peers, "allow": {"providers": ["cloud"], "verbs": ["get", "list"]}})
}

#[test]
fn each_listener_has_its_own_rules() {
    let Some(place) = Place::new() else { return };
    for directory in ["apps", "admin"] {
        place.directory(directory, BROKER, 0o755);
    }
    let open = json!({"mode": "0666"});
    let (mut apps, mut admin) = (place.listen("apps/socket", &open), place.listen("admin/socket", &open));
    (apps["name"], admin["name"]) = (json!("apps"), json!("admin"));
    let access = json!([
        rule("apps", &json!({"uids": [CLIENT], "listeners": ["apps"]})),
        rule("admin", &json!({"uids": [CLIENT + 1], "listeners": ["admin"]})),
    ]);
    let _broker = place.broker_with(&[], &[], &json!([apps, admin]), &access);
    for (uid, served, denied) in
        [(CLIENT, "apps/socket", "admin/socket"), (CLIENT + 1, "admin/socket", "apps/socket")]
    {
        assert_eq!(token(&place.shim(&[], uid, &[], served)), "shared");
        assert_answered(&place.shim(&[], uid, &[], denied));
    }
}

#[test]
fn a_group_of_the_rules_is_served_through_the_socket_of_that_group() {
    let Some(place) = Place::new() else { return };
    place.directory("shared", 0, 0o1777);
    let listen = json!({"mode": "0660", "group": GROUP.to_string(), "sharedDirectory": true});
    let access = json!([rule("apps", &json!({"gids": [GROUP]}))]);
    let listen = place.listen("shared/broker.sock", &listen);
    let _broker = place.broker_with(&[], &[GROUP], &listen, &access);
    assert_eq!(token(&place.knowing_shim(CLIENT, &[GROUP], "shared/broker.sock")), "shared");
    assert_answered(&place.knowing_shim(0, &[], "shared/broker.sock"));
    let stderr = refused(&place.shim(&[], CLIENT, &[GROUP], "shared/broker.sock"), 77);
    assert!(stderr.contains("set CREDBROKER_BROKER_UID"), "{stderr}");
}

#[test]
fn every_listener_serves() {
    let Some(place) = Place::new() else { return };
    for directory in ["apps", "admin"] {
        place.directory(directory, BROKER, 0o755);
    }
    let (mut apps, mut admin) =
        (place.listen("apps/socket", &json!({"mode": "0666"})), place.listen("admin/socket", &json!({})));
    (apps["name"], admin["name"]) = (json!("apps"), json!("admin"));
    let _broker = place.broker(&[], &[], &json!([apps, admin]));
    for socket in ["apps/socket", "admin/socket"] {
        assert_eq!(token(&place.shim(&[], BROKER, &[], socket)), "shared");
    }
    assert_answered(&place.shim(&[], CLIENT, &[], "apps/socket"));
    refused(&place.shim(&[], CLIENT, &[], "admin/socket"), 69);
}
