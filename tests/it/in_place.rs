//! `credbroker kubeconfig inject` and `restore`: the real command, a real broker, and a home directory.

use std::{
    fs,
    ops::Deref,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant, SystemTime},
};

use credbroker_client::{Client, Socket};
use credbroker_test_support::{Broker, BrokerBuilder, FakePlugin, Home};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A user with a kubeconfig as a user writes it.
struct Person {
    home: Home,
    plugin: FakePlugin,
}

impl Deref for Person {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Person {
    fn new() -> Self {
        let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
        let person = Self { home: Home::own(), plugin };
        fs::create_dir(person.path(".kube")).unwrap();
        person.write(".kube/config", person.text(), 0o640);
        person
    }

    /// The user `dev` runs the plugin; `robot` has a secret.
    fn text(&self) -> String {
        let plugin = self.plugin.path();
        format!(
            "# mine
apiVersion: v1
kind: Config
current-context: dev
clusters:
- name: c
  cluster: {{server: https://cluster.example}}
contexts:
- {{name: dev, context: {{cluster: c, user: dev}}}}  # daily
- {{name: ops, context: {{cluster: c, user: ops}}}}
users:
- name: dev   # me
  user:
    exec:
      # the plugin
      apiVersion: client.authentication.k8s.io/v1
      command: {plugin}
      args:
      - get-token   # always
      interactiveMode: Never
- name: ops
  user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: \"{plugin}\", args: [ops], interactiveMode: Never}}}}
- name: robot
  user: {{token: c4n4ry}}
",
            plugin = plugin.display()
        )
    }

    fn kubeconfig(&self) -> String {
        self.read(".kube/config")
    }

    fn broker(&self) -> BrokerBuilder {
        Broker::builder(PROGRAM).env("HOME", self.directory())
    }

    fn run(&self, socket: &Path, args: &[&str]) -> Output {
        let output = self.command(PROGRAM).args(args).env("CREDBROKER_SOCKET", socket).output().unwrap();
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(!String::from_utf8(said).unwrap().contains("c4n4ry"));
        output
    }

    /// Standard output of a command that succeeds.
    #[track_caller]
    fn said(&self, socket: &Path, args: &[&str]) -> String {
        let output = self.run(socket, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The token that the user `name` of the kubeconfig gets.
    #[track_caller]
    fn token_of(&self, socket: &Path, name: &str) -> String {
        let kubeconfig = parsed(&self.kubeconfig());
        self.token(&kubeconfig, name, |command| command.env("CREDBROKER_SOCKET", socket))
    }

    /// When the broker has read its files.
    fn read_at(broker: &Broker) -> Option<SystemTime> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // From the library: the times of the command have whole seconds.
        let configuration = runtime.block_on(async {
            let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
            client.admin().broker_info().await.unwrap().configuration.unwrap()
        });
        assert!(configuration.problems.is_empty(), "{configuration:?}");
        configuration.read_at
    }

    /// Returns when the broker has read its files again.
    fn has_read_again(broker: &Broker) {
        let read = || Self::read_at(broker);
        let before = read();
        let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while read() == before {
            assert!(Instant::now() < deadline, "the broker does not read its files");
        }
    }
}

fn parsed(text: &str) -> Value {
    credbroker_credential::document::yaml(text.as_bytes(), credbroker_credential::document::Aliases::Follow)
        .unwrap()
        .to_json()
}

#[test]
fn a_kubeconfig_is_changed_in_place_and_back_without_a_gap_and_without_a_trace() {
    let home = Person::new();
    let before = home.kubeconfig();
    let broker = home.broker().start();
    let socket = broker.socket();
    home.said(&socket, &["get", "dev"]);

    let said = home.said(&socket, &["kubeconfig", "inject"]);
    assert!(said.contains("2 users request their credentials from the broker: dev, ops"), "{said}");
    let injected = home.kubeconfig();
    for kept in ["# mine\n", "# daily\n", "# me\n", "token: c4n4ry", "- {name: ops, context:"] {
        assert!(injected.contains(kept), "{injected}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.path(".kube/config")), 0o640);
    // A request would get PROVIDER_CHANGED while it reads them.
    let written = fs::metadata(home.path(".kube/config")).unwrap().modified().unwrap();
    assert!(Person::read_at(&broker) > Some(written), "inject waits until the broker has read the files");
    // The credential from before is still the one that is served.
    assert_eq!(home.token_of(&socket, "dev"), "token-1");
    assert_eq!(home.plugin.runs(), 1);
    assert_eq!(home.token_of(&socket, "ops"), "token-2");

    // Once more changes nothing.
    home.said(&socket, &["kubeconfig", "inject"]);
    assert_eq!(home.kubeconfig(), injected);

    let said = home.said(&socket, &["kubeconfig", "restore"]);
    assert!(said.contains("restored dev, ops"), "{said}");
    assert_eq!(home.kubeconfig(), before);
    Person::has_read_again(&broker);
    let dev = home.said(&socket, &["get", "dev", "-o", "token"]);
    assert_eq!((dev.trim(), home.plugin.runs()), ("token-1", 2));
    let (_, log) = broker.stop();
    assert!(!log.contains("c4n4ry"), "{log}");
}

#[test]
fn without_a_broker_a_client_runs_the_recorded_plugin() {
    let home = Person::new();
    let broker = home.broker().start();
    let socket = broker.socket();
    let said = home.said(&socket, &["kubeconfig", "inject"]);
    let plugin = home.plugin.path().display().to_string();
    assert!(said.contains(&format!("clients run the plugins themselves: {plugin}\n")), "{said}");
    let kubeconfig = parsed(&home.kubeconfig());
    let stanza = kubeconfig.pointer("/users/0/user/exec").unwrap();
    // The shell is the client, whose environment the shim compares with its own.
    let client = || {
        let mut client = home.command("/bin/sh");
        client.args(["-c", "\"$@\"; exit $?", "sh"]).arg(stanza["command"].as_str().unwrap());
        client.args(stanza["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
        client.env("CREDBROKER_SOCKET", &socket).output().unwrap()
    };
    let token = || {
        let output = client();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        parsed(str::from_utf8(&output.stdout).unwrap())["status"]["token"].as_str().unwrap().to_owned()
    };
    assert_eq!([token(), token()], ["token-1", "token-1"]);
    broker.stop();
    assert_eq!([token(), token()], ["token-2", "token-3"]);
    fs::remove_file(home.path(".local/state/credbroker/originals")).unwrap();
    assert_eq!(client().status.code(), Some(69));
    assert_eq!(home.plugin.runs(), 3);
}

#[test]
fn commands_in_parallel_wait_for_each_other() {
    let home = Person::new();
    let broker = home.broker().start();
    let (home, socket) = (&home, &broker.socket());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let copy = home.path(&format!("copy-{number}"));
            let command = move || home.said(socket, &["kubeconfig", "wrap", "-o", copy.to_str().unwrap()]);
            scope.spawn(command);
        }
    });
    assert_eq!(home.read(".local/state/credbroker/originals").lines().count(), 2);
}

#[test]
fn one_context_is_changed_and_the_other_later() {
    let home = Person::new();
    let before = home.kubeconfig();
    let broker = home.broker().start();
    let socket = broker.socket();
    let error = home.run(&socket, &["kubeconfig", "inject", "prod"]);
    let error = String::from_utf8(error.stderr).unwrap();
    assert!(error.contains("context `prod` not found; the contexts are: dev, ops"), "{error}");
    home.said(&socket, &["kubeconfig", "inject", "ops"]);
    assert!(home.kubeconfig().contains("- get-token   # always\n"));
    assert_eq!(home.token_of(&socket, "ops"), "token-1");
    home.said(&socket, &["kubeconfig", "inject"]);
    assert_eq!(home.token_of(&socket, "dev"), "token-2");
    home.said(&socket, &["kubeconfig", "restore"]);
    assert_eq!(home.kubeconfig(), before);
}

#[test]
fn edits_made_meanwhile_stay_when_the_stanzas_are_restored() {
    let home = Person::new();
    let broker = home.broker().start();
    let socket = broker.socket();
    let edited = |text: String| {
        let text =
            text.replace("# daily", "# weekly").replace("current-context: dev", "current-context: ops");
        text.replace("users:\n", "users:\n- name: new   # added\n  user: {token: t}\n")
    };
    let expected = edited(home.kubeconfig());
    home.said(&socket, &["kubeconfig", "inject"]);
    fs::write(home.path(".kube/config"), edited(home.kubeconfig())).unwrap();
    home.said(&socket, &["kubeconfig", "restore"]);
    assert_eq!(home.kubeconfig(), expected);
}

/// kubectl writes the whole file in its own form; `aws eks update-kubeconfig` writes its own stanza.
#[test]
fn a_file_that_other_programs_rewrote_gets_back_what_is_still_ours() {
    let home = Person::new();
    let broker = home.broker().start();
    let socket = broker.socket();
    let mut expected = parsed(&home.kubeconfig());
    home.said(&socket, &["kubeconfig", "inject"]);
    let mut rewritten = parsed(&home.kubeconfig());
    let own = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "aws", "interactiveMode": "Never"});
    for document in [&mut rewritten, &mut expected] {
        document["users"][1]["user"]["exec"] = own.clone();
    }
    fs::write(home.path(".kube/config"), serde_json::to_string_pretty(&rewritten).unwrap()).unwrap();
    let said = home.said(&socket, &["kubeconfig", "restore"]);
    assert!(said.contains("restored dev\n"), "{said}");
    assert_eq!(parsed(&home.kubeconfig()), expected);
    assert!(home.said(&socket, &["kubeconfig", "restore"]).contains("Nothing to restore"));
}

/// A user edits the stanza: the value of a variable reaches the shim, but a new one does not.
#[test]
fn an_edited_variable_is_never_answered_with_the_credential_of_another_value() {
    let home = Person::new();
    let stanza = "args: [ops], interactiveMode: Never";
    let with_env = |env: &str| format!("{stanza}, env: [{env}]");
    home.write(".kube/config", home.text().replace(stanza, &with_env("{name: ACCOUNT, value: a}")), 0o600);
    // Another file has the stanza as it was.
    home.write("other", home.kubeconfig(), 0o600);
    let list = [home.path(".kube/config"), home.path("other")];
    let broker = home.broker().env("KUBECONFIG", std::env::join_paths(&list).unwrap()).start();
    let socket = broker.socket();
    let own = home.path(".kube/config").display().to_string();
    let inject = || home.said(&socket, &["kubeconfig", "inject", "--kubeconfig", &own]);
    inject();
    Person::has_read_again(&broker);
    assert_eq!(home.token_of(&socket, "ops"), "token-1");
    let injected = home.kubeconfig();
    for (env, is_sent) in [
        ("{name: ACCOUNT, value: b}", true),
        ("{name: ACCOUNT, value: a}, {name: MORE, value: x}", false),
        ("{name: OTHER, value: a}", false),
        ("", false),
    ] {
        home.write(".kube/config", injected.replace("{name: ACCOUNT, value: a}", env), 0o600);
        Person::has_read_again(&broker);
        let runs = home.plugin.runs();
        let output = home
            .shim(&parsed(&home.kubeconfig()), "ops", |command| command.env("CREDBROKER_SOCKET", &socket));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), is_sent, "{env}: {error}");
        if is_sent {
            assert_eq!(home.plugin.runs(), runs + 1, "{env}");
            continue;
        }
        assert!(
            error.contains("UNKNOWN_DEFINITION") && error.contains("`credbroker kubeconfig inject`"),
            "{env}: {error}"
        );
        assert_eq!(home.plugin.runs(), runs, "{env}");
        let doctor = home.run(&socket, &["doctor", "--kubeconfig", &own]);
        let found = String::from_utf8(doctor.stdout).unwrap();
        assert!(found.contains("were edited") && found.contains("ops"), "{env}: {found}");
        inject();
        Person::has_read_again(&broker);
        let token = home.token_of(&socket, "ops");
        assert_eq!(token, format!("token-{}", runs + 1), "{env}");
    }
}

#[test]
fn without_a_broker_nothing_is_changed_and_a_second_run_continues() {
    let home = Person::new();
    let before = home.kubeconfig();
    let absent = home.path("absent.sock");
    let output = home.run(&absent, &["kubeconfig", "inject"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{error}");
    assert!(error.contains("was not changed; run this command again"), "{error}");
    assert_eq!(home.kubeconfig(), before);
    let broker = home.broker().start();
    home.said(&broker.socket(), &["kubeconfig", "inject"]);
    assert_eq!(home.token_of(&broker.socket(), "dev"), "token-1");
}

#[test]
fn a_broker_that_reads_another_configuration_is_not_relied_on() {
    let home = Person::new();
    let before = home.kubeconfig();
    let config = home.path("broker.yaml");
    let text =
        "# mine\napiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nkubeconfigs: [~/other] # all\n";
    home.write("other", before.replace("[ops]", "[other]"), 0o600);
    credbroker_test_support::private_file(&config, text);
    let broker = home.broker().arg("--config").arg(&config).start();
    let socket = broker.socket();
    let output = home.run(&socket, &["kubeconfig", "inject", "--timeout", "1s"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("was not changed") && error.contains("--config"), "{error}");
    assert_eq!(home.kubeconfig(), before);
    let config = config.to_str().unwrap();
    home.said(&socket, &["kubeconfig", "inject", "--config", config]);
    assert_eq!(home.token_of(&socket, "dev"), "token-1");
    home.said(&socket, &["kubeconfig", "restore", "--config", config]);
    assert_eq!(home.kubeconfig(), before);
    assert!(fs::read_to_string(config).unwrap().contains(".kube/config"), "the broker still reads it");
}

#[test]
fn each_file_of_the_list_is_changed_and_links_stay_links() {
    let home = Person::new();
    let before = home.kubeconfig();
    fs::rename(home.path(".kube/config"), home.path("dotfile")).unwrap();
    symlink("../dotfile", home.path(".kube/config")).unwrap();
    let other = before.replace("name: dev", "name: two").replace("user: dev", "user: two");
    let other = other.replace("name: ops", "name: three").replace("user: ops", "user: three");
    fs::write(home.path("other"), &other).unwrap();
    let list = format!("{}:{}", home.path(".kube/config").display(), home.path("other").display());
    let broker = home.broker().env("KUBECONFIG", &list).start();
    let socket = broker.socket();
    let mut inject = home.command(PROGRAM);
    inject.args(["kubeconfig", "inject"]).env("KUBECONFIG", &list).env("CREDBROKER_SOCKET", &socket);
    let output = inject.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("is a symbolic link"), "{said}{:?}", output.stderr);
    assert!(home.path(".kube/config").symlink_metadata().unwrap().is_symlink());
    assert_eq!(home.token_of(&socket, "dev"), "token-1");
    let output =
        home.command(PROGRAM).args(["kubeconfig", "restore"]).env("KUBECONFIG", &list).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((home.kubeconfig(), home.read("other")), (before.clone(), other.clone()));
    assert!(home.path(".kube/config").symlink_metadata().unwrap().is_symlink());
}

/// kubectl locks a file by the name that it was given.
#[test]
fn a_file_that_cannot_be_restored_does_not_keep_the_others() {
    let home = Person::new();
    let before = home.kubeconfig();
    fs::rename(home.path(".kube/config"), home.path("dotfile")).unwrap();
    symlink("../dotfile", home.path(".kube/config")).unwrap();
    let other = before.replace("name: dev", "name: two").replace("name: ops", "name: three");
    home.write("other", &other, 0o600);
    let list = [home.path(".kube/config"), home.path("other")];
    let broker = home.broker().env("KUBECONFIG", std::env::join_paths(&list).unwrap()).start();
    let socket = broker.socket();
    for file in list.iter().map(|path| path.to_str().unwrap()) {
        home.said(&socket, &["kubeconfig", "inject", "--kubeconfig", file]);
    }
    // Both orders, because the files of the definitions have names that differ from run to run.
    for (locked, is_left) in [(".kube/config", [true, false]), ("other", [false, true])] {
        let lock = format!("{locked}.lock");
        home.write(&lock, "", 0o600);
        let output = home.run(&socket, &["kubeconfig", "restore"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("is locked"), "{error}");
        assert_eq!([home.kubeconfig() != before, home.read("other") != other], is_left, "{error}");
        fs::remove_file(home.path(&lock)).unwrap();
        for file in list.iter().map(|path| path.to_str().unwrap()) {
            home.said(&socket, &["kubeconfig", "inject", "--kubeconfig", file]);
        }
    }
    fs::remove_file(home.path("dotfile")).unwrap();
    let output = home.run(&socket, &["kubeconfig", "restore"]);
    assert_eq!((output.status.code(), home.read("other")), (Some(0), other));
}

/// kubectl adds, changes and removes variables of a stanza, and keeps the arguments of the shim.
#[test]
fn a_stanza_whose_variables_kubectl_changed_is_never_answered_with_another_one() {
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        return println!("SKIPPED: this machine has no kubectl");
    }
    let home = Person::new();
    let stanza = "args: [ops], interactiveMode: Never";
    let with_env = format!("{stanza}, env: [{{name: ACCOUNT, value: a}}]");
    home.write(".kube/config", home.text().replace(stanza, &with_env), 0o600);
    home.write("other", home.kubeconfig(), 0o600);
    let list = [home.path(".kube/config"), home.path("other")];
    let broker = home.broker().env("KUBECONFIG", std::env::join_paths(&list).unwrap()).start();
    let socket = broker.socket();
    let own = home.path(".kube/config").display().to_string();
    let inject = || home.said(&socket, &["kubeconfig", "inject", "--kubeconfig", &own]);
    inject();
    let injected = home.kubeconfig();
    assert_eq!(home.token_of(&socket, "ops"), "token-1");
    for (change, is_sent) in
        [("--exec-env=ACCOUNT=b", true), ("--exec-env=MORE=x", false), ("--exec-env=ACCOUNT-", false)]
    {
        home.write(".kube/config", &injected, 0o600);
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["config", "set-credentials", "ops", change, "--kubeconfig", &own]);
        assert!(kubectl.output().unwrap().status.success(), "{change}");
        Person::has_read_again(&broker);
        let runs = home.plugin.runs();
        let output = home
            .shim(&parsed(&home.kubeconfig()), "ops", |command| command.env("CREDBROKER_SOCKET", &socket));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), is_sent, "{change}: {error}");
        assert_eq!(home.plugin.runs(), runs + usize::from(is_sent), "{change}");
        if !is_sent {
            assert!(
                error.contains("UNKNOWN_DEFINITION") && error.contains("`credbroker kubeconfig inject`"),
                "{change}: {error}"
            );
            let doctor = home.run(&socket, &["doctor", "--kubeconfig", &own]);
            let found = String::from_utf8(doctor.stdout).unwrap();
            assert!(found.contains("were edited") && found.contains("ops"), "{change}: {found}");
        }
        inject();
        home.token_of(&socket, "ops");
    }
}
