//! `credbroker setup` and its undo, as a person runs them: the real program as another user, in an empty home.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use credbroker_test_support::{Kubeconfig, private_directory};
use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const USER: u32 = 1001;

/// A home, with the program in `bin`.
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
        let home = Self { directory: private_directory() };
        fs::set_permissions(home.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for directory in ["bin", "run", ".kube", "tools"] {
            fs::create_dir(home.path(directory)).unwrap();
            fs::set_permissions(home.path(directory), fs::Permissions::from_mode(0o755)).unwrap();
            chown(home.path(directory), Some(USER), Some(USER)).unwrap();
        }
        chown(home.directory.path(), Some(USER), Some(USER)).unwrap();
        fs::copy(PROGRAM, home.path("bin/credbroker")).unwrap();
        fs::set_permissions(home.path("bin/credbroker"), fs::Permissions::from_mode(0o755)).unwrap();
        let kubeconfig = Kubeconfig::new().cluster("c", &json!({"server": "https://cluster.example"}));
        let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": home.path("tools/plugin"),
            "interactiveMode": "Never", "provideClusterInfo": false});
        let kubeconfig = kubeconfig.exec_user("dev", &stanza).context("x", "c", "dev");
        kubeconfig.write(home.path(".kube/config"));
        chown(home.path(".kube/config"), Some(USER), Some(USER)).unwrap();
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "mine", "expirationTimestamp": "2999-01-01T00:00:00Z"}});
        let script = format!("echo >> {}\ncat <<END\n{credential}\nEND", home.path("run/runs").display());
        home.tool("plugin", &script);
        Some(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program in `PATH`.
    fn tool(&self, name: &str, script: &str) {
        let path = self.path("tools").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A user manager that records what it is asked for.
    fn with_systemd(self) -> Self {
        self.tool("systemctl", &format!("echo \"$@\" >> {}", self.path("tools/log").display()));
        fs::write(self.path("tools/log"), "").unwrap();
        chown(self.path("tools/log"), Some(USER), Some(USER)).unwrap();
        self
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().env("HOME", self.directory.path());
        command
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("tools").display()));
        command.current_dir("/").stdin(Stdio::null()).uid(USER).gid(USER);
        command
    }

    /// Standard output and error of a run of the program that ends with `code`.
    #[track_caller]
    fn said(&self, args: &[&str], code: i32) -> String {
        let output = self.command(&self.path("bin/credbroker"), args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    }

    /// All files of the home but those of the test, with their contents.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut left = vec![self.directory.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let is_test = ["bin", "tools", "run"].iter().any(|name| path == self.path(name));
                if path.is_dir() && !is_test {
                    left.push(path);
                } else if !is_test {
                    let contents = fs::read(&path).unwrap();
                    files.insert(path, contents);
                }
            }
        }
        files
    }

    /// What the user `dev` of the copy gets, as a client with few variables runs its plugin.
    fn token(&self) -> String {
        let copy = fs::read(self.path(".kube/broker")).unwrap();
        let copy =
            credbroker::document::yaml(&copy, credbroker::document::Aliases::Follow).unwrap().to_json();
        let exec = &copy["users"][0]["user"]["exec"];
        let args: Vec<_> = exec["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        let mut command = self.command(Path::new(exec["command"].as_str().unwrap()), &args);
        let output = command.env("SECRET", "c4n4ry").output().unwrap();
        assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), self.log());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["status"]["token"].as_str().unwrap().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path(".local/state/credbroker/broker.log")).unwrap_or_default()
    }
}

#[test]
fn with_systemd_units_configuration_copy_and_pages_are_written_and_removed_again() {
    let Some(home) = Home::new() else { return };
    let home = home.with_systemd();
    let before = home.files();
    let said = home.said(&["setup"], 1);
    assert!(said.contains("This writes:") && said.contains("--yes"), "{said}");
    assert_eq!(home.files(), before);

    let said = home.said(&["setup", "--yes"], 0);
    let copy = home.path(".kube/broker");
    assert!(said.contains(&format!("\n  export KUBECONFIG={}\n", copy.display())), "{said}");
    let unit = fs::read_to_string(home.path(".config/systemd/user/credbroker.service")).unwrap();
    let config = home.path(".config/credbroker/config.yaml");
    let program = fs::canonicalize(home.path("bin/credbroker")).unwrap();
    let start = format!("\nExecStart=\"{}\" serve --config \"{}\"\n", program.display(), config.display());
    assert!(unit.contains(&start), "{unit}");
    let asked = fs::read_to_string(home.path("tools/log")).unwrap();
    assert!(asked.ends_with("--user daemon-reload\n--user enable --now credbroker.socket\n"), "{asked}");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(&format!("kubeconfigs:\n- {}\n", home.path(".kube/config").display())), "{text}");
    for file in [&copy, &config] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for page in ["man/man1/credbroker-setup.1", "bash-completion/completions/credbroker"] {
        assert!(home.path(".local/share").join(page).is_file(), "{page}");
    }
    let after = home.files();
    home.said(&["setup", "--yes"], 0);
    assert_eq!(home.files(), after);

    home.said(&["setup", "--undo", "--yes"], 0);
    assert_eq!(home.files(), before);
    let asked = fs::read_to_string(home.path("tools/log")).unwrap();
    assert!(asked.contains("--user disable --now credbroker.socket credbroker.service\n"), "{asked}");
    assert!(home.said(&["setup", "--undo", "--yes"], 0).contains("Nothing to undo"));
}

#[test]
fn what_a_person_wrote_or_changed_is_neither_overwritten_nor_removed() {
    let Some(home) = Home::new() else { return };
    let home = home.with_systemd();
    let write = |name: &str, text: &str| {
        let path = home.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let mut above = path.as_path();
        while above != home.directory.path() {
            chown(above, Some(USER), Some(USER)).unwrap();
            fs::set_permissions(above, fs::Permissions::from_mode(0o700)).unwrap();
            above = above.parent().unwrap();
        }
    };
    let own = "# mine\napiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nkubeconfigs: []\nlimits: {entries: 100}\n";
    write(".config/credbroker/config.yaml", own);
    write(".config/systemd/user/credbroker.socket", "# my own unit\n");
    let before = home.files();
    let said = home.said(&["setup", "--yes"], 0);
    assert!(said.contains("credbroker.socket was not written by setup, and stays as it is"), "{said}");
    let config = || fs::read_to_string(home.path(".config/credbroker/config.yaml")).unwrap();
    assert!(config().contains("# mine") && config().contains(".kube/config"), "{}", config());
    let copy = fs::read_to_string(home.path(".kube/broker")).unwrap();
    let changed = copy.replace("clusters:\n", "clusters:\n- {name: added, cluster: {server: https://a}}\n");
    fs::write(home.path(".kube/broker"), &changed).unwrap();
    write(".config/fish/completions/credbroker.fish", "# changed\n");
    let said = home.said(&["setup", "--undo", "--yes"], 0);
    for name in [".kube/broker", ".config/fish/completions/credbroker.fish"] {
        assert!(
            said.contains(&format!("{} was changed since, and stays", home.path(name).display())),
            "{said}"
        );
    }
    let mut after = home.files();
    assert_eq!(after.remove(&home.path(".kube/broker")).unwrap(), changed.as_bytes());
    assert_eq!(after.remove(&home.path(".config/fish/completions/credbroker.fish")).unwrap(), b"# changed\n");
    assert_eq!(after, before);
}

#[test]
fn without_systemd_the_first_client_starts_the_broker_and_undo_stops_it() {
    let Some(home) = Home::new() else { return };
    let before = home.files();
    let said = home.said(&["setup", "--yes", "--no-systemd"], 0);
    assert!(said.contains("without systemd"), "{said}");
    assert_eq!(home.token(), "mine");
    let stream =
        std::os::unix::net::UnixStream::connect(home.path("run/credbroker/credbroker.sock")).unwrap();
    let broker = rustix::net::sockopt::socket_peercred(&stream).unwrap().pid.as_raw_nonzero();
    let of_broker = |name: &str| fs::read(format!("/proc/{broker}/{name}")).unwrap();
    assert_eq!(fs::read_link(format!("/proc/{broker}/cwd")).unwrap(), Path::new("/"));
    let stat = String::from_utf8(of_broker("stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, broker.to_string());
    assert!(!String::from_utf8_lossy(&of_broker("environ")).contains("c4n4ry"));
    assert_eq!(home.token(), "mine");
    assert_eq!(fs::read_to_string(home.path("run/runs")).unwrap(), "\n", "one run");

    home.said(&["setup", "--undo", "--yes"], 0);
    let mut after = home.files();
    after.remove(&home.path(".local/state/credbroker/broker.log"));
    assert_eq!(after, before);
    let is_gone = || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !home.path("run/credbroker/credbroker.sock").exists()
    };
    assert!((0..3000).any(|_| is_gone()), "{}", home.log());
}

#[test]
fn without_a_place_for_the_socket_the_message_says_what_to_do() {
    let Some(home) = Home::new() else { return };
    let mut command = home.command(&home.path("bin/credbroker"), &["setup", "--yes"]);
    let output = command.env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("XDG_RUNTIME_DIR is not set") && error.contains("/run/user/1001"), "{error}");
    let mut command = home.command(&home.path("bin/credbroker"), &["status"]);
    let output = command.env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("only looked for if XDG_RUNTIME_DIR is set"), "{error}");
}
