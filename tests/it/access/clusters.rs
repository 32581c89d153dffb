//! `clusterInfo` without a value: once there are rules, a plugin gets only clusters that the broker knows. The real
//! programs; a wrapped kubeconfig always sends its cluster.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use credbroker_config as config;
use credbroker_config::kubeconfig::Mode;
use credbroker_test_support::{Broker, Kubeconfig, private_directory};
use tempfile::TempDir;

use super::*;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const KNOWN: &str = "https://known.example:6443";
const UNKNOWN: &str = "https://unknown.example:6443";

/// Providers `gets` and `blind` of the configuration, and users `gets` and `blind` of a kubeconfig whose cluster is
/// known. The plugins of `gets` get the cluster. The token is its server.
struct Setting {
    directory: TempDir,
    plugin: FakePlugin,
}

impl Setting {
    fn new() -> Self {
        let server =
            r#"$(printf %s "$KUBERNETES_EXEC_INFO" | sed 's/.*"server":"\([^"]*\)".*/\1/; t; s/.*/none/')"#;
        let plugin = FakePlugin::builder().token_from_shell(server).expires_in(3600).build();
        Self { directory: private_directory(), plugin }
    }

    fn stanza(&self, gets_cluster: bool) -> Value {
        let mut stanza = self.plugin.exec_stanza();
        stanza["provideClusterInfo"] = json!(gets_cluster);
        stanza
    }

    fn kubeconfig(&self) -> PathBuf {
        let path = self.directory.path().join("kubeconfig");
        let users = [("known-gets", true), ("known-blind", false)];
        let kubeconfig = Kubeconfig::new().cluster("c", &json!({"server": KNOWN}));
        let kubeconfig = users.into_iter().fold(kubeconfig, |kubeconfig, (user, gets_cluster)| {
            kubeconfig.exec_user(user, &self.stanza(gets_cluster)).context(user, "c", user)
        });
        kubeconfig.write(&path);
        path
    }

    fn broker(&self, access: &Value, explicit: &Value) -> Broker {
        let provider =
            |name: &str, gets_cluster| json!({"name": name, "execConfig": self.stanza(gets_cluster)});
        let mut chosen = provider("chosen", true);
        chosen["clusterInfo"] = explicit.clone();
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "access": access,
            "providers": [provider("gets", true), provider("blind", false), chosen],
            "kubeconfigs": [self.kubeconfig()],
        });
        Broker::builder(PROGRAM).config(&config.to_string()).start()
    }

    /// Runs what the wrapped kubeconfig has for `user`, as kubectl does for a cluster at `server`.
    fn wrapped(&self, broker: &Broker, user: &str, server: &str) -> Output {
        let path = self.directory.path().join("wrapped");
        let mut wrap = Command::new(PROGRAM);
        wrap.args(["kubeconfig", "wrap", "--kubeconfig"]).arg(self.kubeconfig()).arg("-o").arg(&path);
        assert!(wrap.arg("--socket").arg(broker.socket()).env_clear().status().unwrap().success());
        let read = config::read_kubeconfig(&[path], Mode::Named).unwrap();
        let users = read.users();
        let exec = users.iter().find(|wrapped| wrapped.name == user).unwrap().body.get("exec").unwrap();
        assert_eq!(
            exec.get("provideClusterInfo").and_then(credbroker_credential::document::Node::as_bool),
            Some(true),
            "it sends it"
        );
        let args = exec.get("args").unwrap().as_sequence().unwrap().iter().map(|arg| arg.as_str().unwrap());
        ask(exec.get("command").unwrap().as_str().unwrap().as_ref(), args, server)
    }
}

fn ask<'a>(program: &Path, args: impl IntoIterator<Item = &'a str>, server: &str) -> Output {
    let info = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "spec": {"interactive": false, "cluster": {"server": server}},
    });
    let mut command = Command::new(program);
    command.args(args).env_clear().env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(Stdio::null()).output().unwrap()
}

fn shim(broker: &Broker, provider: &str, server: &str) -> Output {
    let socket = broker.socket();
    ask(PROGRAM.as_ref(), ["shim", "--provider", provider, "--socket", socket.to_str().unwrap()], server)
}

#[track_caller]
fn assert_token(output: &Output, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["status"]["token"], expected, "{stderr}");
}

#[track_caller]
fn assert_mismatch(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("CLUSTER_MISMATCH"), "{stderr}");
}

#[test]
fn with_rules_a_plugin_gets_only_clusters_that_the_broker_knows() {
    let setting = Setting::new();
    let broker = setting.broker(&rule(&json!({"providers": ["*"], "verbs": ["get"]})), &json!("FromCaller"));
    assert_mismatch(&shim(&broker, "gets", UNKNOWN));
    assert_mismatch(&setting.wrapped(&broker, "known-gets", UNKNOWN));
    assert_eq!(setting.plugin.runs(), 0);
    assert_token(&setting.wrapped(&broker, "known-gets", KNOWN), KNOWN);
    assert_token(&shim(&broker, "chosen", UNKNOWN), UNKNOWN);
    // A plugin that does not get the cluster is as without rules.
    for server in [KNOWN, UNKNOWN] {
        assert_token(&shim(&broker, "blind", server), "none");
        assert_token(&setting.wrapped(&broker, "known-blind", server), "none");
    }
}

#[test]
fn without_rules_a_plugin_gets_the_cluster_of_its_caller() {
    let setting = Setting::new();
    let broker = setting.broker(&json!([]), &json!("Match"));
    for server in [KNOWN, UNKNOWN] {
        assert_token(&shim(&broker, "gets", server), server);
        assert_token(&setting.wrapped(&broker, "known-gets", server), server);
    }
    assert_mismatch(&shim(&broker, "chosen", UNKNOWN));
}
