//! The table of the sockets that clients trust, which the library, the shim and the Go module share.

use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::private_directory;

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../client/testdata/trust.json"));

/// What a client makes of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It connects and sends its request.
    Trusted,
    /// It sends nothing, and says why.
    Untrusted,
    /// It looks for no socket there, and says why.
    Ignored,
}

/// One case of the table, with its directories.
#[derive(Debug)]
pub struct TrustCase {
    /// For messages.
    pub name: String,
    /// Uid of the client.
    pub client: u32,
    /// `CREDBROKER_BROKER_UID`.
    pub broker_uid: Option<u32>,
    /// `CREDBROKER_SOCKET`.
    pub socket: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_directory: Option<PathBuf>,
    /// What the client makes of it.
    pub verdict: Verdict,
    /// What its error contains.
    pub says: Vec<String>,
    /// Where the server listens.
    pub listener: UnixListener,
    _mount: Option<Mount>,
    _base: TempDir,
}

/// A directory that is mounted read-only until this is dropped.
#[derive(Debug)]
struct Mount(PathBuf);

impl TrustCase {
    /// Makes the cases of the table one after the other. Prints those that this process cannot make.
    pub fn all() -> impl Iterator<Item = Self> {
        let table: Value = serde_json::from_str(TABLE).expect("a table");
        let cases = part(&table, "cases").as_array().expect("cases").clone();
        cases.into_iter().filter_map(move |case| Self::new(&case, part(&table, "users")))
    }

    fn new(case: &Value, users: &Value) -> Option<Self> {
        let text = |key: &str| case.get(key).map(|value| value.as_str().expect("a text"));
        let own = geteuid();
        // Without root, the client is this user.
        let uid = |name: &str| match name {
            "client" if !own.is_root() => own.as_raw(),
            name => u32::try_from(part(users, name).as_u64().expect("a user")).expect("a uid"),
        };
        let name = text("name").expect("a name");
        let tree = part(case, "tree").as_array().expect("a tree");
        let owners = tree.iter().map(|item| part(item, "owner").as_str().expect("an owner"));
        let mut all = owners.chain([text("client"), text("server")].into_iter().flatten());
        let is_of_client = all.all(|user| user == "client") && text("readOnly").is_none();
        if !own.is_root() && !is_of_client {
            println!("SKIPPED: only root can act as other users: {name}");
            return None;
        }
        let Some(base) = directory_without_others() else {
            println!("SKIPPED: there is no directory above which only root can write: {name}");
            return None;
        };
        for item in tree {
            make(base.path(), item, uid(part(item, "owner").as_str().expect("an owner")));
        }
        let at = |key: &str| text(key).map(|path| base.path().join(path));
        let (socket, runtime_directory) = (at("socket"), at("runtimeDirectory"));
        let listens = at("listens").or_else(|| socket.clone()).expect("a socket");
        let listener = UnixListener::bind(&listens).expect("a listener");
        fs::set_permissions(&listens, Permissions::from_mode(0o666)).expect("a mode");
        // The kernel records the user of the last call.
        let server = uid(text("server").expect("a server"));
        as_user(server, || rustix::net::listen(&listener, 16).expect("a listener"));
        let mount = match at("readOnly").map(|path| Mount::new(&path)) {
            Some(None) => {
                println!("SKIPPED: this process cannot mount: {name}");
                return None;
            }
            mount => mount.flatten(),
        };
        let says = case.get("says").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            name: name.to_owned(),
            client: uid(text("client").expect("a client")),
            broker_uid: text("brokerUid").map(uid),
            socket,
            runtime_directory,
            verdict: match text("verdict").expect("a verdict") {
                "trusted" => Verdict::Trusted,
                "untrusted" => Verdict::Untrusted,
                "ignored" => Verdict::Ignored,
                other => panic!("{name}: {other}"),
            },
            says: says.map(|text| text.as_str().expect("a text").to_owned()).collect(),
            listener,
            _mount: mount,
            _base: base,
        })
    }

    /// Compares what a client made of the socket, and its error.
    #[track_caller]
    pub fn check(&self, verdict: Verdict, error: &str) {
        let name = &self.name;
        assert_eq!(verdict, self.verdict, "{name}: {error}");
        for part in &self.says {
            assert!(error.contains(part), "{name}: {part:?} is not in: {error}");
        }
    }
}

/// Runs `act` on a thread of another user. Only root can.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    if uid == geteuid().as_raw() {
        return act();
    }
    let acting = || {
        let user = Uid::from_raw(uid);
        set_thread_groups(&[]).expect("no groups");
        set_thread_res_gid(None, Some(Gid::from_raw(uid)), None).expect("a group");
        set_thread_res_uid(None, Some(user), None).expect("a user");
        act()
    };
    thread::scope(|scope| scope.spawn(acting).join()).expect("it ends")
}

/// A directory of this user. For root, one above which only root can write, which /tmp is not.
pub fn directory_without_others() -> Option<TempDir> {
    if !geteuid().is_root() {
        return Some(private_directory());
    }
    let is_roots = |path: &&&str| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0)
    };
    let of_root = |path: &&str| {
        tempfile::Builder::new().prefix("trust").permissions(Permissions::from_mode(0o755)).tempdir_in(path)
    };
    ["/var/lib", "/opt", "/run"].iter().filter(is_roots).find_map(|path| of_root(path).ok())
}

fn part<'a>(of: &'a Value, key: &str) -> &'a Value {
    of.get(key).unwrap_or_else(|| panic!("the table of sockets has no `{key}`: {of}"))
}

fn make(base: &Path, item: &Value, owner: u32) {
    let path = |key: &str| item.get(key).map(|path| base.join(path.as_str().expect("a path")));
    match (path("dir"), path("link")) {
        (Some(path), None) => {
            let mode = u32::from_str_radix(part(item, "mode").as_str().expect("a mode"), 8).expect("a mode");
            DirBuilder::new().mode(0o700).create(&path).expect("a directory");
            lchown(&path, Some(owner), Some(owner)).expect("an owner");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        }
        (None, Some(path)) => {
            symlink(part(item, "to").as_str().expect("a target"), &path).expect("a link");
            lchown(&path, Some(owner), Some(owner)).expect("an owner");
        }
        _ => panic!("neither a directory nor a link: {item}"),
    }
}

impl Mount {
    fn new(path: &Path) -> Option<Self> {
        let run = |args: &[&str]| Command::new("mount").args(args).arg(path).status();
        let is_done = |args: &[&str]| run(args).is_ok_and(|status| status.success());
        if !is_done(&["--bind", path.to_str()?]) {
            return None;
        }
        let mount = Self(path.to_owned());
        is_done(&["-o", "remount,bind,ro"]).then_some(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}
