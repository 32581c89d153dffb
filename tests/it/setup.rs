//! `credbroker setup` and its undo, as a user runs them: the real program as another user, in an empty home.

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

/// A user with the program in `bin`, other programs in `tools`, and a kubeconfig with a plugin.
pub(crate) struct Person(Home);

impl Deref for Person {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

impl Person {
    /// `None`, and a word about it, where this process cannot act as another user.
    pub(crate) fn new() -> Option<Self> {
        Self::of(USER)
    }

    fn of(user: u32) -> Option<Self> {
        let home = Home::of(user, &["bin", "run", ".kube", "tools"])?;
        home.install("bin/credbroker", fs::read(PROGRAM).unwrap());
        let kubeconfig = Kubeconfig::new().cluster("c", &json!({"server": "https://cluster.example"}));
        let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": home.path("tools/plugin"),
            "interactiveMode": "Never", "provideClusterInfo": false});
        let kubeconfig = kubeconfig.exec_user("dev", &stanza).context("x", "c", "dev");
        home.write(".kube/config", kubeconfig.to_yaml(), 0o644);
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "mine", "expirationTimestamp": "2999-01-01T00:00:00Z"}});
        let runs = home.path("run/runs");
        let script = format!("echo $DIRECT >> {}\ncat <<END\n{credential}\nEND", runs.display());
        home.script("tools/plugin", &script);
        Some(Self(home))
    }

    /// A user manager that records what it is asked for.
    pub(crate) fn with_systemd(self) -> Self {
        let log = self.path("tools/log");
        self.script("tools/systemctl", &format!("echo \"$@\" >> {}", log.display()));
        self.write("tools/log", "", 0o644);
        self
    }

    pub(crate) fn program(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.path("bin/credbroker"));
        command.args(args).env("PATH", format!("{}:/usr/bin:/bin", self.path("tools").display()));
        command
    }

    /// Standard output and error of a run of the program that ends with `code`.
    #[track_caller]
    pub(crate) fn said(&self, args: &[&str], code: i32) -> String {
        let output = self.program(args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    }

    /// Writes a file of the user, with its directories.
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
    pub(crate) fn own_token(&self) -> String {
        self.token(&self.kubeconfig(), "dev", |command| command.env("SECRET", "c4n4ry"))
    }

    pub(crate) fn kubeconfig(&self) -> serde_json::Value {
        let text = self.read(".kube/config");
        let aliases = credbroker_credential::document::Aliases::Follow;
        credbroker_credential::document::yaml(text.as_bytes(), aliases).unwrap().to_json()
    }

    /// The process of the broker.
    pub(crate) fn listener(&self) -> i32 {
        let path = self.path("run/credbroker/credbroker.sock");
        let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        rustix::net::sockopt::socket_peercred(&stream).unwrap().pid.as_raw_nonzero().get()
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
    let path = format!("\nEnvironment=\"PATH={}:/usr/bin:/bin\"\n", home.path("tools").display());
    assert!(unit.contains(&path) && said.contains("The plugins of 1 user can run."), "{unit}{said}");
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
    let own = "# mine\napiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nlimits: {credentials: 100}\n";
    home.own(".config/credbroker/config.yaml", own);
    home.own(".config/systemd/user/credbroker.socket", "# my own unit\n");
    let before = home.files();
    let said = home.said(&["setup", "--yes"], 0);
    assert!(
        said.contains("credbroker.socket was not written by setup, and setup does not change it"),
        "{said}"
    );
    let config = || home.read(".config/credbroker/config.yaml");
    assert!(config().contains("# mine") && config().contains(".kube/config"), "{}", config());
    let added = |text: &str| text.replace("users:\n", "users:\n  - {name: added, user: {token: t}}\n");
    home.write(".kube/config", added(&home.read(".kube/config")), 0o644);
    home.own(".config/fish/completions/credbroker.fish", "# changed\n");
    let said = home.said(&["setup", "--undo", "--yes"], 0);
    let page = home.path(".config/fish/completions/credbroker.fish");
    assert!(said.contains(&format!("{} has changed since, and stays", page.display())), "{said}");
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
    assert!(
        said.contains("start-on-demand.json was not written by setup, and setup does not change it"),
        "{said}"
    );
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
    let broker = home.listener();
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

/// A umask of 002 and a group for each user, as some systems have.
#[test]
fn a_home_that_only_the_private_group_of_its_owner_can_write_is_accepted() {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let users = users.lines().filter_map(|line| Some((line.split(':').nth(2)?, line.split(':').nth(3)?)));
    let mut users = users.filter(|(user, group)| user == group).filter_map(|(user, _)| user.parse().ok());
    let Some(home) = users.find(|user| *user != 0).and_then(Person::of) else { return };
    let home = home.with_systemd();
    home.give("", 0o775);
    home.said(&["setup", "--yes", "--no-systemd"], 0);
    assert_eq!(home.own_token(), "mine");
    home.said(&["setup", "--undo", "--yes"], 0);
}

/// It is a copy: its users have no original.
#[test]
fn a_kubeconfig_of_an_earlier_version_is_refused_and_the_command_names_the_original() {
    let Some(home) = Person::new() else { return };
    home.said(&["setup", "--yes", "--no-systemd"], 0);
    let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "credbroker-exec",
        "args": ["--provider", "dev", "--definition", "0".repeat(40)], "interactiveMode": "Never"});
    home.write(".kube/broker", Kubeconfig::new().exec_user("dev", &stanza).to_yaml(), 0o600);
    let run = |args: &[&str]| {
        let output = home.program(args).env("KUBECONFIG", home.path(".kube/broker")).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let command = format!("`export KUBECONFIG={}; credbroker setup`", home.path(".kube/config").display());
    for args in [&["setup", "--yes"][..], &["doctor"]] {
        let (code, said) = run(args);
        assert!(code != Some(0) && said.contains(&command), "{said}");
    }
    let (code, said) = run(&["setup", "--undo", "--yes"]);
    let remove =
        format!("kubectl --kubeconfig {} config delete-user dev", home.path(".kube/broker").display());
    assert!(code == Some(1) && said.contains(&remove) && !said.contains("Undone"), "{said}");
    home.said(&["setup", "--undo", "--yes"], 0);
}

#[test]
fn a_broker_with_an_earlier_program_or_path_is_restarted() {
    let Some(home) = Person::new() else { return };
    home.said(&["setup", "--yes", "--no-systemd"], 0);
    home.own_token();
    let process = || home.listener();
    let first = process();
    assert!(!home.said(&["setup", "--yes", "--no-systemd"], 0).contains("restart"));
    assert_eq!(process(), first);
    let doctor = || home.said(&["doctor"], 0);
    assert!(!doctor().contains("has changed since"));

    home.install("bin/new", fs::read(PROGRAM).unwrap());
    fs::rename(home.path("bin/new"), home.path("bin/credbroker")).unwrap();
    let said = doctor();
    assert!(said.contains("has changed since the running broker started"), "{said}");
    assert!(said.contains("-> run `credbroker restart`"), "{said}");
    let said = home.said(&["setup", "--yes", "--no-systemd"], 0);
    assert!(said.contains("Restarted."), "{said}");
    let second = process();
    assert_ne!(second, first);
    assert!(!doctor().contains("has changed since"));

    let output =
        home.program(&["setup", "--yes", "--no-systemd"]).env("PATH", "/bin:/usr/bin").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mark = home.path(".config/credbroker/start-on-demand.json");
    assert!(said.contains(&format!("{} has changed since it started", mark.display())), "{said}");
    assert_ne!(process(), second);
    home.said(&["setup", "--undo", "--yes"], 0);
}

#[test]
fn a_plugin_that_moved_in_the_path_of_the_shell_is_found_by_the_broker_after_a_setup() {
    let Some(home) = Person::new() else { return };
    let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "moved", "interactiveMode": "Never"});
    home.write(".kube/config", Kubeconfig::new().exec_user("dev", &stanza).to_yaml(), 0o644);
    let said = home.said(&["setup", "--yes", "--no-systemd"], 0);
    assert!(said.contains("Warning: moved is not installed; providers that need it: dev"), "{said}");
    home.script("tools/moved", "true");
    home.said(&["setup", "--yes", "--no-systemd"], 0);
    let doctor = |path: &str| {
        let output = home.program(&["doctor"]).env("PATH", path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = doctor(&home.path("tools").display().to_string());
    assert!(said.contains("finds the plugins where your shell does"), "{said}");
    fs::create_dir(home.path("tools/new")).unwrap();
    home.give("tools/new", 0o755);
    fs::rename(home.path("tools/moved"), home.path("tools/new/moved")).unwrap();
    let said = doctor(&home.path("tools/new").display().to_string());
    assert!(said.contains("does not find moved where your shell does"), "{said}");
    assert!(said.contains("-> run `credbroker setup` in this shell"), "{said}");
    home.said(&["setup", "--undo", "--yes"], 0);
}

#[test]
fn a_user_of_zsh_reads_which_line_of_which_file_completion_needs() {
    let Some(home) = Person::new() else { return };
    let setup = || {
        let mut setup = home.program(&["setup", "--yes", "--no-systemd"]);
        String::from_utf8(setup.env("SHELL", "/usr/bin/zsh").output().unwrap().stdout).unwrap()
    };
    let functions = home.path(".local/share/zsh/site-functions").display().to_string();
    let line = format!(
        "add this line to {} before `compinit`: fpath=({functions} $fpath)",
        home.path(".zshrc").display()
    );
    assert!(setup().contains(&line), "{}", setup());
    home.own(".zshrc", &format!("fpath=({functions} $fpath)\n"));
    assert!(!setup().contains("zshrc"), "{}", setup());
    assert!(!home.said(&["setup", "--yes", "--no-systemd"], 0).contains("zshrc"));
}
