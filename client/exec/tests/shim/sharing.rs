//! A broker and a shim of different users that share a directory, as containers of a pod do.

use std::{
    fs,
    io::Write,
    os::unix::{fs::chown, net::UnixListener},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use credbroker_test_support::program_file;
use rustix::{
    process::{Uid, geteuid},
    thread::set_thread_res_uid,
};

use crate::{
    broker::{Answer, Broker, set_mode},
    shim::{complaint, document, printed, text},
};

const BROKER: u32 = 2001;
const CLIENT: u32 = 1001;
/// The modes of a Kubernetes `emptyDir`: on disk or in memory, without and with `fsGroup`.
const SHARED: [u32; 4] = [0o777, 0o1777, 0o2777, 0o3777];

/// A broker of another user, in its own directory in a directory of root's.
struct Pod {
    broker: Broker,
    shim: PathBuf,
}

impl Pod {
    /// `None`, and a word about it, where this process cannot act as other users.
    fn with(mode: u32) -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can act as other users");
            return None;
        }
        let mut broker = Broker::absent();
        set_mode(broker.directory.path(), 0o755);
        let shim = broker.directory.path().join("credbroker-exec");
        program_file(&shim, fs::read(env!("CARGO_BIN_EXE_credbroker-exec")).unwrap());
        let (shared, folder) = (broker.directory.path().join("shared"), "shared/broker.sock.d");
        let folder = broker.directory.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        set_mode(&shared, mode);
        set_mode(&folder, 0o711);
        chown(&folder, Some(BROKER), Some(BROKER)).unwrap();
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        set_mode(&socket, 0o666);
        // The kernel records the user of the last call.
        let listen = || {
            set_thread_res_uid(None, Some(Uid::from_raw(BROKER)), None).unwrap();
            rustix::net::listen(&listener, 16).unwrap();
        };
        thread::scope(|scope| scope.spawn(listen).join()).unwrap();
        broker.serve(listener, Answer::token("shared"));
        Some(Self { broker, shim })
    }

    fn shared(&self) -> PathBuf {
        self.broker.directory.path().join("shared")
    }

    /// Both names of the socket: in the broker's directory, and beside it.
    fn names(&self) -> [PathBuf; 2] {
        ["broker.sock.d/socket", "broker.sock"].map(|name| self.shared().join(name))
    }

    /// The words of a shim of another user.
    fn client(&self, socket: &Path) -> Vec<String> {
        let id = CLIENT.to_string();
        let words = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"].map(str::to_owned);
        let socket = socket.to_str().unwrap().to_owned();
        let shim = [self.shim.to_str().unwrap(), "--provider", "gke", "--socket"].map(str::to_owned);
        words.into_iter().chain(shim).chain([socket]).collect()
    }

    fn run(&self, socket: &Path) -> Command {
        let words = self.client(socket);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command
    }

    /// Runs the shim in new user, PID and mount namespaces that map the first `mapped` users, after the commands `mount`.
    fn in_namespaces(&self, socket: &Path, mapped: u32, mount: &str, extra: &[&str]) -> Output {
        let words: Vec<_> =
            self.client(socket).into_iter().chain(extra.iter().map(|&word| word.to_owned())).collect();
        let script = format!("read -r mapped && {mount} exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--user", "--mount", "--pid", "--fork", "sh", "-c", &script, "sh"]).args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let proc = PathBuf::from(format!("/proc/{}", child.id()));
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_link(proc.join("ns/user")).is_ok_and(|found| found == own) {
            assert!(Instant::now() < deadline, "it has its own namespace");
            thread::sleep(Duration::from_millis(1));
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(proc.join(map), format!("0 0 {mapped}")).unwrap();
        }
        child.stdin.take().unwrap().write_all(b"mapped\n").unwrap();
        child.wait_with_output().unwrap()
    }

    fn read_only(&self) -> String {
        let shared = self.shared();
        let shared = shared.display();
        format!("mount --bind {shared} {shared} && mount -o remount,bind,ro {shared} &&")
    }
}

/// Whether this machine has user namespaces for the test; a word about it if not.
fn has_namespaces() -> bool {
    let made = Command::new("unshare").args(["--user", "--mount", "--pid", "--fork", "true"]).output();
    let has = made.is_ok_and(|made| made.status.success());
    if !has {
        println!("SKIPPED: this machine does not allow new user namespaces");
    }
    has
}

#[test]
fn a_read_only_mount_of_any_mode_is_trusted_in_other_namespaces() {
    if !has_namespaces() {
        return;
    }
    for mode in SHARED {
        let Some(pod) = Pod::with(mode) else { return };
        for name in pod.names() {
            let output = pod.in_namespaces(&name, 65_536, &pod.read_only(), &[]);
            assert_eq!(printed(&output)["status"]["token"], "shared", "{mode:o} {}", name.display());
        }
        let stderr = text(&pod.in_namespaces(&pod.names()[0], 65_536, "", &[]).stderr);
        assert!(stderr.contains("other users can make or replace its directory"), "{mode:o}: {stderr}");
    }
}

#[test]
fn a_broker_that_the_kernel_cannot_map_is_not_trusted_with_any_expected_uid() {
    if !has_namespaces() {
        return;
    }
    let Some(pod) = Pod::with(0o1777) else { return };
    for extra in [&[][..], &["--broker-uid", "65534"], &["--broker-uid", "2001"]] {
        // The client's user is mapped, the broker's is not.
        let output = pod.in_namespaces(&pod.names()[0], CLIENT + 1, &pod.read_only(), extra);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(77), "{stderr}");
        assert!(stderr.contains("runs as uid 65534, which the kernel uses for all users"), "{stderr}");
    }
    assert!(pod.broker.requests().is_empty(), "nothing was sent");
}

#[test]
fn a_writable_mount_is_trusted_only_with_the_uid_of_the_broker() {
    for mode in SHARED {
        let Some(pod) = Pod::with(mode) else { return };
        for name in pod.names() {
            let line = complaint(&mut pod.run(&name), 77);
            assert!(line.contains("other users can make or replace its directory"), "{line}");
            assert!(line.contains("set CREDBROKER_BROKER_UID or --broker-uid"), "{line}");
            document(pod.run(&name).env("CREDBROKER_BROKER_UID", "2001"));
            document(pod.run(&name).args(["--broker-uid", "2001"]).env("CREDBROKER_BROKER_UID", "1"));
            let line = complaint(pod.run(&name).env("CREDBROKER_BROKER_UID", "0"), 77);
            assert!(line.contains("runs as uid 2001") && line.contains("requires uid 0"), "{line}");
        }
    }
}

#[test]
fn a_uid_that_is_not_one_is_named_with_its_origin() {
    let broker = Broker::with_token("t");
    let line = complaint(crate::shim::asking(&broker).args(["--broker-uid", "root"]), 2);
    assert!(line.contains("--broker-uid is \"root\""), "{line}");
    let line = complaint(crate::shim::asking(&broker).env("CREDBROKER_BROKER_UID", "-1"), 78);
    assert!(line.contains("CREDBROKER_BROKER_UID is \"-1\""), "{line}");
    assert!(broker.requests().is_empty());
    let own = geteuid().as_raw().to_string();
    document(crate::shim::asking(&broker).env("CREDBROKER_BROKER_UID", own));
}
