//! `credbroker setup` and its undo, as a person runs them: the real program as another user, in an empty home.

use std::{
    collections::BTreeMap,
    fs,
    ops::Deref,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use credbroker_test_support::{Home, Kubeconfig};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const USER: u32 = 1001;

/// A person with the program in `bin`, other programs in `tools`, and a kubeconfig with a plugin.
struct Person(Home);

impl Deref for Person {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

impl Person {
    /// `None`, and a word about it, where this process cannot act as another user.
    fn new() -> Option<Self> {
        let home = Home::of(USER, &["bin", "run", ".kube", "tools"])?;
        home.install("bin/credbroker", fs::read(PROGRAM).unwrap());
        let kubeconfig = Kubeconfig::new().cluster("c", &json!({"server": "https://cluster.example"}));
        let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": home.path("tools/plugin"),
            "interactiveMode": "Never", "provideClusterInfo": false});
        let kubeconfig = kubeconfig.exec_user("dev", &stanza).context("x", "c", "dev");
        home.write(".kube/config", kubeconfig.to_yaml(), 0o644);
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "mine", "expirationTimestamp": "2999-01-01T00:00:00Z"}});
        let runs = home.path("run/runs");
        let script = format!("echo >> {}\ncat <<END\n{credential}\nEND", runs.display());
        home.script("tools/plugin", &script);
        Some(Self(home))
    }

    /// A user manager that records what it is asked for.
    fn with_systemd(self) -> Self {
        let log = self.path("tools/log");
        self.script("tools/systemctl", &format!("echo \"$@\" >> {}", log.display()));
        self.write("tools/log", "", 0o644);
        self
    }

    fn program(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.path("bin/credbroker"));
        command.args(args).env("PATH", format!("{}:/usr/bin:/bin", self.path("tools").display()));
        command
    }

    /// Standard output and error of a run of the program that ends with `code`.
    #[track_caller]
    fn said(&self, args: &[&str], code: i32) -> String {
        let output = self.program(args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    }

    /// Writes a file of the person, with its directories.
    fn own(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        self.write(name, text, 0o600);
        for above in Path::new(name).ancestors().skip(1).filter(|above| *above != Path::new("")) {
            self.give(above.to_str().unwrap(), 0o700);
        }
    }

    /// All files of the home but those of the test, with their contents.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut left = vec![self.directory().to_owned()];
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

    /// What the user `dev` of the kubeconfig gets.
    fn own_token(&self) -> String {
        let text = self.read(".kube/config");
        let aliases = credbroker_credential::document::Aliases::Follow;
        let root = credbroker_credential::document::yaml(text.as_bytes(), aliases).unwrap();
        self.token(&root.to_json(), "dev", |command| command.env("SECRET", "c4n4ry"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path(".local/state/credbroker/broker.log")).unwrap_or_default()
    }
}

#[test]
fn with_systemd_units_configuration_kubeconfig_and_pages_are_written_and_removed_again() {
    let Some(home) = Person::new() else { return };
    let home = home.with_systemd();
    let before = home.files();
    let said = home.said(&["setup"], 1);
    assert!(said.contains("This writes:") && said.contains("--yes"), "{said}");
    assert_eq!(home.files(), before);

    let said = home.said(&["setup", "--yes"], 0);
    let kubeconfig = home.path(".kube/config");
    assert!(said.contains(&format!("{}: credbroker-exec in front", kubeconfig.display())), "{said}");
    assert!(said.contains("run `credbroker kubeconfig inject` again"), "{said}");
    assert!(home.read(".kube/config").contains("--provider"), "{}", home.read(".kube/config"));
    let unit = fs::read_to_string(home.path(".config/systemd/user/credbroker.service")).unwrap();
    let config = home.path(".config/credbroker/config.yaml");
    let program = fs::canonicalize(home.path("bin/credbroker")).unwrap();
    let start = format!("\nExecStart=\"{}\" serve --config \"{}\"\n", program.display(), config.display());
    assert!(unit.contains(&start), "{unit}");
    let asked = home.read("tools/log");
    assert!(asked.ends_with("--user daemon-reload\n--user enable --now credbroker.socket\n"), "{asked}");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(&format!("kubeconfigs:\n- {}\n", home.path(".kube/config").display())), "{text}");
    for (file, mode) in [(&kubeconfig, 0o644), (&config, 0o600)] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, mode);
    }
    for page in ["man/man1/credbroker-setup.1", "bash-completion/completions/credbroker"] {
        assert!(home.path(".local/share").join(page).is_file(), "{page}");
    }
    let after = home.files();
    home.said(&["setup", "--yes"], 0);
    assert_eq!(home.files(), after);

    home.said(&["setup", "--undo", "--yes"], 0);
    assert_eq!(home.files(), before);
    let asked = home.read("tools/log");
    assert!(asked.contains("--user disable --now credbroker.socket credbroker.service\n"), "{asked}");
    assert!(home.said(&["setup", "--undo", "--yes"], 0).contains("Nothing to undo"));
}

#[test]
fn what_a_person_wrote_or_changed_is_neither_overwritten_nor_removed() {
    let Some(home) = Person::new() else { return };
    let home = home.with_systemd();
    let own = "# mine\napiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nlimits: {entries: 100}\n";
    home.own(".config/credbroker/config.yaml", own);
    home.own(".config/systemd/user/credbroker.socket", "# my own unit\n");
    let before = home.files();
    let said = home.said(&["setup", "--yes"], 0);
    assert!(said.contains("credbroker.socket was not written by setup, and stays as it is"), "{said}");
    let config = || home.read(".config/credbroker/config.yaml");
    assert!(config().contains("# mine") && config().contains(".kube/config"), "{}", config());
    let added = |text: &str| text.replace("users:\n", "users:\n  - {name: added, user: {token: t}}\n");
    home.write(".kube/config", added(&home.read(".kube/config")), 0o644);
    home.own(".config/fish/completions/credbroker.fish", "# changed\n");
    let said = home.said(&["setup", "--undo", "--yes"], 0);
    let page = home.path(".config/fish/completions/credbroker.fish");
    assert!(said.contains(&format!("{} was changed since, and stays", page.display())), "{said}");
    let (mut after, mut before) = (home.files(), before);
    let original = before.get_mut(&home.path(".kube/config")).unwrap();
    *original = added(str::from_utf8(original).unwrap()).into_bytes();
    assert_eq!(after.remove(&home.path(".config/fish/completions/credbroker.fish")).unwrap(), b"# changed\n");
    assert_eq!(after, before);
}

/// A kubeconfig that still ran the shim would have none.
#[test]
fn nothing_is_removed_while_a_kubeconfig_uses_the_shim() {
    let Some(home) = Person::new() else { return };
    let home = home.with_systemd();
    home.said(&["setup", "--yes"], 0);
    let written = home.files();
    home.own(".kube/config.lock", "");
    let said = home.said(&["setup", "--undo", "--yes"], 1);
    assert!(said.contains("is locked") && said.contains("nothing was removed"), "{said}");
    fs::remove_file(home.path(".kube/config.lock")).unwrap();
    assert_eq!(home.files(), written);
    assert!(home.said(&["setup", "--undo", "--yes"], 0).contains("Undone."));
}

#[test]
fn what_an_unfinished_undo_left_is_removed_by_the_next_one() {
    let Some(home) = Person::new() else { return };
    let home = home.with_systemd();
    home.own(".config/credbroker/config.yaml", "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n");
    let before = home.files();
    home.said(&["setup", "--yes"], 0);
    let config = home.read(".config/credbroker/config.yaml");
    home.own(".config/credbroker/config.yaml", &config.replace("kubeconfigs:\n", "? kubeconfigs\n:\n"));
    let mut written = home.files();
    let said = home.said(&["setup", "--undo", "--yes"], 1);
    written.insert(home.path(".kube/config"), before[&home.path(".kube/config")].clone());
    assert!(said.contains("in `kubeconfigs` by hand, and run this command again"), "{said}");
    assert_eq!(home.files(), written, "nothing is removed before");

    home.own(".config/credbroker/config.yaml", &config);
    fs::remove_file(home.path(".config/systemd/user/credbroker.socket")).unwrap();
    home.script("tools/systemctl", "echo \"Unit credbroker.socket does not exist\" >&2; exit 1");
    let said = home.said(&["setup", "--undo", "--yes"], 0);
    assert!(
        said.contains("failed: Unit credbroker.socket does not exist") && said.contains("Undone."),
        "{said}"
    );
    assert_eq!(home.files(), before);
}

#[test]
fn what_the_shim_starts_is_not_recorded_in_a_file_of_another_program() {
    let Some(home) = Person::new() else { return };
    home.own(".config/credbroker/start-on-demand.json", "{}");
    let said = home.said(&["setup", "--yes", "--no-systemd"], 0);
    assert!(said.contains("start-on-demand.json was not written by setup, and stays as it is"), "{said}");
    assert_eq!(home.read(".config/credbroker/start-on-demand.json"), "{}");
    home.said(&["setup", "--undo", "--yes"], 0);
    assert_eq!(home.read(".config/credbroker/start-on-demand.json"), "{}");
}

#[test]
fn without_systemd_the_first_client_starts_the_broker_and_undo_stops_it() {
    let Some(home) = Person::new() else { return };
    let before = home.files();
    let said = home.said(&["setup", "--yes", "--no-systemd"], 0);
    assert!(said.contains("without systemd"), "{said}");
    assert_eq!(home.own_token(), "mine");
    let stream =
        std::os::unix::net::UnixStream::connect(home.path("run/credbroker/credbroker.sock")).unwrap();
    let broker = rustix::net::sockopt::socket_peercred(&stream).unwrap().pid.as_raw_nonzero();
    let of_broker = |name: &str| fs::read(format!("/proc/{broker}/{name}")).unwrap();
    assert_eq!(fs::read_link(format!("/proc/{broker}/cwd")).unwrap(), Path::new("/"));
    let stat = String::from_utf8(of_broker("stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, broker.to_string());
    assert!(!String::from_utf8_lossy(&of_broker("environ")).contains("c4n4ry"));
    assert_eq!(home.own_token(), "mine");
    assert_eq!(home.read("run/runs"), "\n", "one run");

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
fn without_systemd_a_command_that_needs_the_broker_starts_it_and_the_others_say_so() {
    let Some(home) = Person::new() else { return };
    let socket = home.path("run/credbroker/credbroker.sock");
    for args in [&["get"][..], &["refresh"], &["explain", "dev"], &["clusters"]] {
        home.said(&["setup", "--yes", "--no-systemd"], 0);
        for idle in ["status", "doctor"] {
            let said = home.said(&[idle], 0);
            assert!(said.contains("not running; starts on demand"), "{said}");
        }
        assert!(home.said(&["status", "-o", "json"], 0).contains("\"startsOnDemand\": true"));
        for other in ["evict", "logout"] {
            home.said(&[other, "dev"], 69);
        }
        assert!(!socket.exists(), "{}", home.log());
        let output = home.program(args).output().unwrap();
        assert_ne!(output.status.code(), Some(69), "{args:?}: {output:?}");
        assert!(socket.exists() && home.said(&["status"], 0).contains("credbroker"), "{}", home.log());
        home.said(&["setup", "--undo", "--yes"], 0);
        let is_gone = || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !socket.exists()
        };
        assert!((0..3000).any(|_| is_gone()), "{}", home.log());
    }
}

#[test]
fn without_a_place_for_the_socket_the_message_says_what_to_do() {
    let Some(home) = Person::new() else { return };
    let output = home.program(&["setup", "--yes"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("XDG_RUNTIME_DIR is not set") && error.contains("/run/user/1001"), "{error}");
    let output = home.program(&["status"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("only looked for if XDG_RUNTIME_DIR is set"), "{error}");
}

/// The modes of everything in the home, but what the test made.
fn modes(home: &Person) -> BTreeMap<PathBuf, u32> {
    let (mut modes, mut left) = (BTreeMap::new(), vec![home.directory().to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(home.directory()).unwrap().to_owned();
            if ["bin", "tools", "run", ".kube/config"].iter().all(|name| below != Path::new(name)) {
                modes.insert(below, fs::metadata(&path).unwrap().permissions().mode() & 0o7777);
                left.extend(path.is_dir().then_some(path));
            }
        }
    }
    modes
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    for arguments in [&["setup", "--yes"][..], &["setup", "--yes", "--no-systemd"]] {
        let made = ["000", "002", "022", "077"].map(|umask| {
            let home = Person::new()?.with_systemd();
            let mut command = home.command("/bin/sh");
            command
                .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
                .arg(home.path("bin/credbroker"));
            command.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", home.path("tools").display()));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(modes(&home))
        });
        let [Some(first), others @ ..] = made else { return };
        for other in others {
            assert_eq!(other.unwrap(), first);
        }
        for (path, mode) in [(".local", 0o700), (".config", 0o700), (".config/fish/completions", 0o755)] {
            assert_eq!(first.get(Path::new(path)), Some(&mode), "{path}");
        }
        assert_eq!(first.get(Path::new(".local/share/man/man1")), Some(&0o755));
        assert!(first.values().all(|mode| mode & 0o022 == 0), "{first:?}");
    }
}

#[test]
fn nothing_is_written_where_other_users_can_make_files() {
    let Some(home) = Person::new() else { return };
    let home = home.with_systemd();
    fs::create_dir(home.path(".config")).unwrap();
    fs::create_dir(home.path(".config/fish")).unwrap();
    home.give(".config", 0o700);
    home.give(".config/fish", 0o777);
    let before = home.files();
    let said = home.said(&["setup", "--yes"], 1);
    assert!(said.contains(&format!("`chmod go-w {}`", home.path(".config/fish").display())), "{said}");
    assert_eq!(home.files(), before);
    home.give(".config/fish", 0o755);
    home.said(&["setup", "--yes"], 0);
}

#[test]
fn the_runtime_directory_of_another_user_is_ignored_and_it_is_said() {
    let Some(home) = Person::new() else { return };
    std::os::unix::fs::chown(home.path("run"), Some(1002), None).unwrap();
    let ignored =
        format!("XDG_RUNTIME_DIR is ignored, because {} belongs to uid 1002", home.path("run").display());
    for arguments in [&["setup", "--yes"][..], &["status"], &["doctor"], &["get", "dev"], &["serve"]] {
        let output = home.program(arguments).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains(&ignored), "{arguments:?}: {said}");
        assert!(!said.contains("XDG_RUNTIME_DIR is not set"), "{arguments:?}: {said}");
    }
    assert!(!home.path("run/credbroker").exists());
}
