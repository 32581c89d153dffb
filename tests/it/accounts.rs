//! Never the credential of another account: real brokers, real shims, and the kubeconfigs that they write and read.

mod variables;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig as Read, Mode};
use credbroker_plugin::Environment;
use credbroker_test_support::{Broker, FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::provider;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A program with nothing of this process's environment but `PATH`.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
    command
}

/// Standard output of a command that succeeds.
#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The token in what a shim printed.
#[track_caller]
fn token(output: &Output) -> String {
    let document: Value = serde_json::from_str(&stdout(output)).unwrap();
    document["status"]["token"].as_str().unwrap().to_owned()
}

/// Why a shim failed; it printed nothing else.
#[track_caller]
fn failure(output: &Output) -> String {
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn shim(socket: &Path, provider: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = program(&["shim", "--provider", provider, "--socket"]);
    command.arg(socket).envs(variables.iter().copied()).output().unwrap()
}

/// Two kubeconfigs with the same context, cluster and user, whose plugins are two accounts.
struct TwoFiles {
    directory: TempDir,
    accounts: [FakePlugin; 2],
}

impl TwoFiles {
    fn new() -> Self {
        let directory = private_directory();
        let accounts = ["first", "second"].map(|account| {
            let plugin = FakePlugin::builder().token(account).expires_in(3600).build();
            write(&directory.path().join(account), &plugin);
            plugin
        });
        Self { directory, accounts }
    }

    fn file(&self, account: &str) -> PathBuf {
        self.directory.path().join(account)
    }

    fn runs(&self) -> [usize; 2] {
        [self.accounts[0].runs(), self.accounts[1].runs()]
    }

    /// A broker that reads both.
    fn broker_of_both(&self) -> Broker {
        let text = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "kubeconfigs": [self.file("first"), self.file("second")],
        });
        Broker::builder(PROGRAM).config(&text.to_string()).start()
    }

    /// Where the wrapped kubeconfig is, and what `wrap` said.
    fn wrap(&self, account: &str, socket: &Path) -> (PathBuf, String) {
        let wrapped = self.file(&format!("{account}.wrapped"));
        let mut command = program(&["kubeconfig", "wrap", "--kubeconfig"]);
        command.arg(self.file(account)).arg("-o").arg(&wrapped).arg("--socket").arg(socket);
        let output = command.output().unwrap();
        let said = stdout(&output) + &String::from_utf8_lossy(&output.stderr);
        (wrapped, said)
    }
}

/// A kubeconfig whose user `rel` runs `plugin`.
fn write(path: &Path, plugin: &FakePlugin) {
    let cluster = json!({"server": "https://cluster.example"});
    Kubeconfig::new()
        .cluster("c", &cluster)
        .exec_user("rel", &plugin.exec_stanza())
        .context("x", "c", "rel")
        .write(path);
}

/// Runs the plugin of user `rel` in `kubeconfig`, as a client does.
fn plugin_of(kubeconfig: &Path, variables: &[(&str, &str)]) -> Output {
    let read: Read = config::read_kubeconfig(&[kubeconfig.to_owned()], Mode::Named).unwrap();
    let users = read.users();
    let exec = users[0].body.get("exec").unwrap();
    let args = exec.get("args").unwrap().as_sequence().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let mut command = Command::new(exec.get("command").unwrap().as_str().unwrap());
    command.args(args).env_clear().envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_wrapped_kubeconfig_never_gets_the_account_of_another_file_with_the_same_names() {
    let files = TwoFiles::new();
    let broker = Broker::builder(PROGRAM).kubeconfig(files.file("first")).start();
    let (first, said) = files.wrap("first", &broker.socket());
    assert!(said.contains("The running broker has all of these providers."), "{said}");
    let (second, said) = files.wrap("second", &broker.socket());
    assert!(said.contains("does not have 1 of the definitions") && said.contains("restart it"), "{said}");
    assert_eq!(token(&plugin_of(&first, &[])), "first");
    let error = failure(&plugin_of(&second, &[]));
    assert!(error.contains("UNKNOWN_DEFINITION") && error.contains("`kubeconfigs`"), "{error}");
    assert_eq!(files.runs(), [1, 0]);
}

#[test]
fn two_files_that_define_one_name_are_two_providers() {
    let files = TwoFiles::new();
    let broker = files.broker_of_both();
    for account in ["first", "second", "first", "second"] {
        let (wrapped, _) = files.wrap(account, &broker.socket());
        assert_eq!(token(&plugin_of(&wrapped, &[])), account);
    }
    assert_eq!(files.runs(), [1, 1]);

    let error = failure(&shim(&broker.socket(), "rel", &[]));
    assert!(error.contains("AMBIGUOUS_PROVIDER"), "{error}");
    for account in ["first", "second"] {
        let file = std::fs::canonicalize(files.file(account)).unwrap();
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }

    let evict = program(&["evict", "rel", "--socket"]).arg(broker.socket()).output().unwrap();
    assert!(stdout(&evict).contains('2'), "a name means all of its definitions: {evict:?}");
    let (wrapped, _) = files.wrap("second", &broker.socket());
    token(&plugin_of(&wrapped, &[]));
    assert_eq!(files.runs(), [1, 2]);
}

#[test]
fn a_command_selects_one_of_two_definitions() {
    let files = TwoFiles::new();
    let broker = files.broker_of_both();
    let definitions = ["first", "second"].map(|account| {
        let (wrapped, _) = files.wrap(account, &broker.socket());
        token(&plugin_of(&wrapped, &[]));
        let read = config::read_kubeconfig(&[files.file(account)], Mode::Named).unwrap();
        let [(_, definition)] = &config::definitions(&read, &Environment::default()).served[..] else {
            panic!()
        };
        definition.digest.to_string()
    });
    let run = |args: &[&str]| program(args).arg("--socket").arg(broker.socket()).output().unwrap();
    let explained = |args: &[&str]| -> Value {
        serde_json::from_str(&stdout(&run(&[&["explain", "rel", "-o", "json"], args].concat()))).unwrap()
    };
    let both = explained(&[]);
    assert_eq!(both["credentials"].as_array().unwrap().len(), 2);
    let [first, second] = definitions.each_ref().map(String::as_str);
    let only = explained(&["--definition", second]);
    assert_eq!(only["credentials"].as_array().unwrap().len(), 1);
    assert_eq!(only["credentials"][0]["definition"], second);
    assert!(stdout(&run(&["refresh", "rel", "--definition", second])).contains("valid"));
    assert_eq!(files.runs(), [1, 2]);
    assert_eq!(stdout(&run(&["evict", "rel", "--definition", first])), "evicted 1 credential\n");
    assert_eq!(stdout(&run(&["evict", "rel", "--definition", first])), "evicted 0 credentials\n");
    assert!(stdout(&run(&["logout", "rel", "--definition", second])).starts_with("evicted 1 credential of"));
    let unknown = failure(&run(&["evict", "rel", "--definition", &"0".repeat(40)]));
    assert!(unknown.contains("UNKNOWN_DEFINITION"), "{unknown}");
    // A first run of one definition is unambiguous.
    assert!(stdout(&run(&["refresh", "rel", "--definition", first])).contains("valid"));
    assert_eq!(files.runs(), [2, 2]);
}

#[test]
fn a_symbolic_link_to_a_kubeconfig_is_the_same_kubeconfig() {
    let files = TwoFiles::new();
    std::fs::create_dir(files.file("home")).unwrap();
    std::os::unix::fs::symlink(files.file("first"), files.file("home/config")).unwrap();
    std::os::unix::fs::symlink(files.file("home"), files.file("link")).unwrap();
    let broker = Broker::builder(PROGRAM).kubeconfig(files.file("link/config")).start();
    let (wrapped, _) = files.wrap("first", &broker.socket());
    assert_eq!(token(&plugin_of(&wrapped, &[])), "first");
}

#[test]
fn a_changed_stanza_is_the_same_provider_and_starts_cold() {
    let files = TwoFiles::new();
    let broker = files.broker_of_both();
    let (wrapped, _) = files.wrap("first", &broker.socket());
    assert_eq!(token(&plugin_of(&wrapped, &[])), "first");
    drop(broker);
    let changed = FakePlugin::builder().token("changed").expires_in(3600).build();
    write(&files.file("first"), &changed);
    let broker = files.broker_of_both();
    let (again, _) = files.wrap("first", &broker.socket());
    let args =
        |path: &Path| std::fs::read_to_string(path).unwrap().split("--socket").next().unwrap().to_owned();
    assert_eq!(args(&again), args(&wrapped), "its definition is the one that was written before");
    assert_eq!(token(&plugin_of(&again, &[])), "changed");
    assert_eq!((files.runs(), changed.runs()), ([1, 0], 1));
}

#[test]
fn copies_of_a_wrapped_kubeconfig_are_one_run_however_a_client_names_them() {
    let plugin = FakePlugin::builder().token_from_shell("\"${KUBECONFIG-none}\"").expires_in(3600).build();
    let directory = private_directory();
    let original = directory.path().join("config");
    write(&original, &plugin);
    let broker = Broker::builder(PROGRAM).kubeconfig(&original).start();
    let wrapped = directory.path().join("wrapped");
    let wrap = program(&["kubeconfig", "wrap", "-o"])
        .arg(&wrapped)
        .env("KUBECONFIG", &original)
        .env("CREDBROKER_SOCKET", broker.socket())
        .output()
        .unwrap();
    stdout(&wrap);
    let socket = broker.socket();
    let socket = ("CREDBROKER_SOCKET", socket.to_str().unwrap());
    for copy in 0..5 {
        let path = directory.path().join(format!("copy-{copy}"));
        std::fs::copy(&wrapped, &path).unwrap();
        let by_variable = plugin_of(&path, &[socket, ("KUBECONFIG", path.to_str().unwrap())]);
        let by_flag = plugin_of(&path, &[socket]);
        assert_eq!([token(&by_variable), token(&by_flag)], [original.to_str().unwrap(); 2]);
    }
    assert_eq!(plugin.runs(), 1);
}

/// A broker with `variables` in its environment and one provider whose token is its plugin's `AWS_PROFILE`.
fn profiles(more: &Value, variables: &[(&str, &str)]) -> (Broker, FakePlugin) {
    let plugin = FakePlugin::builder().token_from_shell("\"${AWS_PROFILE-none}\"").expires_in(3600).build();
    let mut section = provider("eks", &plugin);
    section["passEnv"] = json!(["AWS_*"]);
    section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut broker = Broker::builder(PROGRAM).providers(&json!([section]));
    for (name, value) in variables {
        broker = broker.env(name, value);
    }
    (broker.start(), plugin)
}

const PROD: (&str, &str) = ("AWS_PROFILE", "prod");
const DEV: (&str, &str) = ("AWS_PROFILE", "dev");

#[test]
fn a_caller_that_names_another_identity_gets_none_until_the_configuration_decides() {
    let (broker, plugin) = profiles(&json!({}), &[PROD]);
    assert_eq!(token(&shim(&broker.socket(), "eks", &[])), "prod");
    let error = failure(&shim(&broker.socket(), "eks", &[DEV]));
    assert!(error.contains("IDENTITY_CONFLICT") && error.contains("AWS_PROFILE"), "{error}");
    assert!(error.contains("`callerEnv: [AWS_PROFILE]`") && error.contains("`callerEnv: []`"), "{error}");
    assert_eq!(token(&shim(&broker.socket(), "eks", &[PROD, ("AWS_REGION", "eu-west-1")])), "prod");
    assert_eq!(plugin.runs(), 1);

    let (broker, _plugin) = profiles(&json!({"callerEnv": []}), &[PROD]);
    assert_eq!(token(&shim(&broker.socket(), "eks", &[DEV])), "prod");
    let (broker, _plugin) = profiles(&json!({"callerEnv": ["AWS_PROFILE"]}), &[PROD]);
    assert_eq!(token(&shim(&broker.socket(), "eks", &[DEV])), "dev");
    assert_eq!(token(&shim(&broker.socket(), "eks", &[])), "none");
    let (broker, _plugin) = profiles(&json!({}), &[]);
    assert!(
        failure(&shim(&broker.socket(), "eks", &[DEV])).contains("IDENTITY_CONFLICT"),
        "it would have none"
    );
}

/// Of IAM roles for service accounts.
#[test]
fn a_workload_identity_of_the_broker_serves_callers_without_one() {
    let role = [
        ("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/eks"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/token"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let (broker, _plugin) = profiles(&json!({}), &role);
    assert_eq!(token(&shim(&broker.socket(), "eks", &[])), "none");
    assert_eq!(token(&shim(&broker.socket(), "eks", &role)), "none", "in the same pod");
}

#[test]
fn a_program_of_the_callers_never_runs_and_its_files_do_where_both_are_one_user() {
    let directory = private_directory();
    let marker = directory.path().join("ran");
    let evil = FakePlugin::script(&format!("touch {}", marker.display()));
    let plugin = FakePlugin::builder()
        .script("[ -z \"$CLOUDSDK_PYTHON\" ] || \"$CLOUDSDK_PYTHON\"\nprintf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}' \"${AWS_CONFIG_FILE-none}\"")
        .build();
    let original = directory.path().join("config");
    write(&original, &plugin);
    let broker = Broker::builder(PROGRAM).kubeconfig(&original).start();
    let python = ("CLOUDSDK_PYTHON", evil.path());
    let error = failure(&shim(&broker.socket(), "rel", &[(python.0, python.1.to_str().unwrap())]));
    assert!(error.contains("VARIABLE_NOT_ALLOWED") && error.contains("CLOUDSDK_PYTHON"), "{error}");
    assert!(error.contains("unset it") && !error.contains(python.1.to_str().unwrap()), "{error}");
    assert_eq!(plugin.runs(), 0);
    assert!(!marker.exists());
    assert_eq!(token(&shim(&broker.socket(), "rel", &[("AWS_CONFIG_FILE", "/mine")])), "/mine");
    assert_eq!(token(&shim(&broker.socket(), "rel", &[])), "none");
}

#[test]
fn a_variable_that_may_select_an_identity_and_is_on_no_list_is_warned_about() {
    let files = TwoFiles::new();
    let broker = Broker::builder(PROGRAM)
        .kubeconfig(files.file("first"))
        .env("SCW_TOKEN", "prod")
        .env("AWS_PROFILE", "x");
    let (_, log) = broker.start().stop();
    assert!(log.contains("[SCW_TOKEN]") && log.contains("callerEnv: [SCW_TOKEN]"), "{log}");
}
