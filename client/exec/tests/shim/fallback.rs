//! The original plugin, where no broker answers. The client is a shell, which starts the shim as kubectl does.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    process::{Command, Stdio},
};

use credbroker_exec::{original_line, originals};
use credbroker_proto::Reason;
use credbroker_stanza::Definition;
use credbroker_test_support::Home;
use rustix::fs::{FlockOperation, flock};

use crate::{
    broker::{Answer, Broker},
    failures::status,
    shim::{printed, text},
};

const STANZA: [&str; 6] = ["--provider", "gke", "--api-version", "v1", "--", "plugin"];
const ORIGINALS: &str = ".local/state/credbroker/originals";

struct Person(Home);

impl Person {
    /// A user for whom the plugin of the stanza `env` is recorded.
    fn new(env: &[(&str, &str)]) -> Self {
        let home = Home::own();
        for directory in ["bin", ".local/state/credbroker", "run"] {
            fs::create_dir_all(home.path(directory)).unwrap();
            let above = Path::new(directory).ancestors().filter(|above| !above.as_os_str().is_empty());
            above.for_each(|above| home.give(above.to_str().unwrap(), 0o700));
        }
        let record = "env > \"$HOME/env\"; ls /proc/$$/fd > \"$HOME/fd\"; echo \"$0: $*\"; cat";
        home.script("bin/plugin", &format!("{record}\nexit 3"));
        let env = env.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))).collect();
        let args = vec![&b"get token"[..]];
        let definition =
            Definition { api_version: "v1", command: b"plugin", args, env, ..Definition::default() };
        let line = original_line(&definition.digest(), &home.path("bin/plugin")).unwrap();
        assert_eq!(originals(None, Some(home.directory())), Some(home.path(ORIGINALS)));
        home.write(ORIGINALS, line, 0o600);
        Self(home)
    }

    /// The client, which runs a stanza with these variables, and does not wait long for a broker.
    fn hasty(&self, env: &[(&str, &str)], more: &[&str]) -> Command {
        self.client(env, &[more, &["--timeout", "0.3s"]].concat())
    }

    /// The client, which runs a stanza with these variables. `more` are further flags.
    fn client(&self, env: &[(&str, &str)], more: &[&str]) -> Command {
        let mut client = self.0.command("/bin/sh");
        client.args(["-c", "env \"$@\"; exit $?", "sh"]);
        client.args(env.iter().map(|(name, value)| format!("{name}={value}")));
        client.arg(env!("CARGO_BIN_EXE_credbroker-exec")).args(more).args(STANZA).arg("get token");
        client.env("PATH", format!("{}:/usr/bin:/bin", self.0.path("bin").display()));
        client.env("CREDBROKER_SOCKET", self.0.path("run/broker.sock"));
        client
    }

    #[track_caller]
    fn runs(&self, client: &mut Command) {
        let output = client.output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
        assert_eq!(text(&output.stdout), format!("{}: get token\n", self.0.path("bin/plugin").display()));
    }

    #[track_caller]
    fn does_not_run(&self, client: &mut Command, code: i32) -> String {
        let output = client.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{said}");
        assert!(!self.0.path("env").exists());
        said
    }
}

#[test]
fn without_a_broker_the_shim_becomes_the_plugin() {
    let person = Person::new(&[]);
    let info = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://a"},"interactive":false}}"#;
    person.runs(person.client(&[("KUBERNETES_EXEC_INFO", info)], &[]).env("AWS_PROFILE", "dev"));
    let env = person.0.read("env");
    assert!(env.contains("AWS_PROFILE=dev\n"), "{env}");
    let given = env.lines().find_map(|line| line.strip_prefix("KUBERNETES_EXEC_INFO=")).unwrap();
    let given: serde_json::Value = serde_json::from_str(given).unwrap();
    assert_eq!(given["spec"], serde_json::json!({"interactive": false}));
    assert_eq!(given["apiVersion"], "client.authentication.k8s.io/v1");
    let descriptors = person.0.read("fd");
    let mut alone = person.0.command("/bin/sh");
    alone
        .args(["-c", "env \"$@\"; exit $?", "sh"])
        .arg(person.0.path("bin/plugin"))
        .env("PATH", "/usr/bin:/bin");
    assert_eq!(alone.output().unwrap().status.code(), Some(3));
    assert_eq!(descriptors, person.0.read("fd"), "the descriptors are the client's");
}

#[test]
fn a_plugin_that_asked_for_the_cluster_gets_it() {
    let person = Person::new(&[]);
    let definition = Definition {
        api_version: "v1",
        command: b"plugin",
        args: vec![b"get token"],
        cluster_info: true,
        ..Definition::default()
    };
    let line = original_line(&definition.digest(), &person.0.path("bin/plugin")).unwrap();
    person.0.write(ORIGINALS, line, 0o600);
    let info =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://a"}}}"#;
    person.runs(&mut person.client(&[("KUBERNETES_EXEC_INFO", info)], &["--cluster-info"]));
    assert!(person.0.read("env").contains(info));
}

#[test]
fn what_is_not_recorded_does_not_run() {
    let person = Person::new(&[]);
    let mut other = person.hasty(&[], &[]);
    person.does_not_run(other.arg("more"), 69);
    person.does_not_run(&mut person.hasty(&[], &["--fallback", "never"]), 69);
    person.does_not_run(&mut person.hasty(&[("AWS_PROFILE", "prod")], &["--env", "AWS_PROFILE"]), 69);
    fs::remove_file(person.0.path(ORIGINALS)).unwrap();
    person.does_not_run(&mut person.hasty(&[], &[]), 69);
}

#[test]
fn a_stanza_cannot_choose_what_runs() {
    let evil = Home::own();
    fs::create_dir_all(evil.path("credbroker")).unwrap();
    evil.give("credbroker", 0o700);
    evil.script("plugin", "touch \"$0.ran\"");
    let variables = [
        ("XDG_STATE_HOME", evil.directory().display().to_string()),
        ("HOME", evil.directory().display().to_string()),
        ("PATH", format!("{}:/usr/bin:/bin", evil.directory().display())),
        ("LD_PRELOAD", evil.path("library").display().to_string()),
        ("CREDBROKER_SOCKET", evil.path("none.sock").display().to_string()),
        ("OTHER", "1".to_owned()),
    ];
    for (name, value) in &variables {
        let env = [(*name, value.as_str())];
        let person = Person::new(&env);
        let line = fs::read(person.0.path(ORIGINALS)).unwrap();
        evil.write("credbroker/originals", &line, 0o600);
        // The stanza says that it sets the variable, or does not.
        let is_harmless = *name == "OTHER";
        let mut named = person.hasty(&env, &["--env", name]);
        if is_harmless {
            person.runs(&mut named);
            fs::remove_file(person.0.path("env")).unwrap();
        } else {
            said_and_did_nothing(&person, &mut named);
        }
        let unnamed = Person::new(&[]);
        said_and_did_nothing(&unnamed, &mut unnamed.hasty(&env, &[]));
        assert!(!evil.path("plugin.ran").exists());
    }
}

fn said_and_did_nothing(person: &Person, client: &mut Command) {
    let output = client.output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert!(!person.0.path("env").exists());
}

#[test]
fn a_list_that_others_can_write_counts_for_nothing() {
    let person = Person::new(&[]);
    for (name, mode) in [(ORIGINALS, 0o602), (".local/state/credbroker", 0o777)] {
        let before = fs::metadata(person.0.path(name)).unwrap().permissions().mode();
        person.0.give(name, mode);
        person.does_not_run(&mut person.hasty(&[], &[]), 69);
        person.0.give(name, before & 0o7777);
    }
    person.runs(&mut person.hasty(&[], &[]));
}

#[test]
fn a_plugin_that_needs_a_terminal_does_not_run_without_one() {
    let person = Person::new(&[]);
    let said = person.does_not_run(&mut person.client(&[], &["--was", "interactiveMode=Always"]), 1);
    assert!(said.contains("needs a terminal"), "{said}");
}

#[test]
fn only_a_broker_without_the_definition_is_replaced() {
    let person = Person::new(&[]);
    let socket = |broker: &Broker| broker.socket();
    let unknown = Broker::failing(status(Reason::UnknownDefinition, "no"));
    person.runs(person.client(&[], &[]).env("CREDBROKER_SOCKET", socket(&unknown)));
    fs::remove_file(person.0.path("env")).unwrap();
    for (reason, code) in [(Reason::PluginExit, 1), (Reason::PeerDenied, 77), (Reason::UnknownProvider, 1)] {
        let broker = Broker::failing(status(reason, "no"));
        person.does_not_run(person.client(&[], &[]).env("CREDBROKER_SOCKET", socket(&broker)), code);
    }
}

#[test]
fn a_process_that_says_nothing_is_replaced_unless_a_broker_runs() {
    let person = Person::new(&[]);
    let _listener = UnixListener::bind(person.0.path("run/broker.sock")).unwrap();
    person.runs(&mut person.client(&[], &[]));
    fs::remove_file(person.0.path("env")).unwrap();
    let lock = fs::File::create(person.0.path("run/.broker.sock.lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    person.does_not_run(&mut person.client(&[], &["--timeout", "1s"]), 75);
}

#[test]
fn a_broker_that_restarts_is_waited_for() {
    let person = Person::new(&[]);
    let mut broker = Broker::absent();
    let leaving = UnixListener::bind(broker.socket()).unwrap();
    let mut client = person.client(&[], &[]);
    client.env("CREDBROKER_SOCKET", broker.socket()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = client.spawn().unwrap();
    let (connection, _) = leaving.accept().unwrap();
    drop((connection, leaving)); // now connections are closed, then refused
    fs::remove_file(broker.socket()).unwrap(); // and now the socket is gone
    broker.start(Answer::token("new"));
    assert_eq!(printed(&client.wait_with_output().unwrap())["status"]["token"], "new");
    assert!(!person.0.path("env").exists());
}
