//! `credbroker doctor`, as a user runs it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use credbroker_test_support::{Broker, FakePlugin, Kubeconfig, private_directory, program_file};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A home with a kubeconfig whose user `dev` runs a plugin, and with a machine around it.
struct Patient {
    home: TempDir,
    plugin: FakePlugin,
}

impl Patient {
    fn new() -> Self {
        let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
        let patient = Self { home: private_directory(), plugin };
        fs::create_dir(patient.path(".kube")).unwrap();
        let kubeconfig = Kubeconfig::new().cluster("c", &json!({"server": "https://cluster.example"}));
        let kubeconfig = kubeconfig.exec_user("dev", &patient.plugin.exec_stanza());
        kubeconfig.context("x", "c", "dev").write(patient.path(".kube/config"));
        patient.tool("timedatectl", "echo yes");
        patient.tool("systemctl", &format!("echo PATH={}", patient.path("bin").display()));
        patient
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A program in `PATH`.
    fn tool(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::create_dir_all(self.path("bin")).unwrap();
        program_file(&path, format!("#!/bin/sh\n{script}\n"));
    }

    fn broker(&self) -> Broker {
        Broker::builder(PROGRAM).env("HOME", self.home.path()).start()
    }

    fn command(&self, socket: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).env_clear().env("HOME", self.home.path()).env("CREDBROKER_SOCKET", socket);
        command.env("PATH", self.path("bin")).stdin(Stdio::null());
        command
    }

    /// The exit code, and `level check: text -> remedy` of each finding.
    fn findings(&self, socket: &Path, kubeconfig: &str) -> (Option<i32>, Vec<String>) {
        let mut command = self.command(socket, &["doctor", "-o", "json"]);
        let Output { status, stdout, stderr } =
            command.env("KUBECONFIG", self.path(kubeconfig)).output().unwrap();
        let document: Value = serde_json::from_slice(&stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stderr)));
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or("-").to_owned();
        let line = |finding: &Value| {
            let [level, check, found, remedy] =
                ["level", "check", "text", "remedy"].map(|key| text(finding, key));
            format!("{level} {check}: {found} -> {remedy}")
        };
        (status.code(), document["findings"].as_array().unwrap().iter().map(line).collect())
    }
}

#[track_caller]
fn has(findings: &[String], start: &str, part: &str) {
    assert!(findings.iter().any(|line| line.starts_with(start) && line.contains(part)), "{findings:#?}");
}

#[test]
fn where_all_is_well_each_check_says_so_and_the_exit_code_is_0() {
    let patient = Patient::new();
    let broker = patient.broker();
    let wrap = ["kubeconfig", "wrap", "-o", ".kube/broker"];
    assert!(
        patient.command(&broker.socket(), &wrap).current_dir(patient.home.path()).status().unwrap().success()
    );
    let (code, findings) = patient.findings(&broker.socket(), ".kube/broker");
    assert_eq!(code, Some(0), "{findings:#?}");
    assert!(findings.iter().all(|line| line.starts_with("ok ")), "{findings:#?}");
    let checks =
        ["socket", "versions", "configuration", "kubeconfig", "plugins", "failures", "PATH", "clock"];
    for (finding, check) in findings.iter().zip(checks) {
        assert!(finding.starts_with(&format!("ok {check}: ")), "{findings:#?}");
    }
    assert_eq!(patient.plugin.runs(), 0);
    let table = patient.command(&broker.socket(), &["doctor"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("ok       clock          synchronized\n"), "{table}");
}

#[test]
fn each_problem_is_named_with_its_remedy() {
    let patient = Patient::new();
    patient.tool("timedatectl", "echo no");
    patient.tool("credbroker-exec", "echo credbroker-exec 0.0.1");
    patient.tool("systemctl", "echo PATH=/nowhere");
    let broker = patient.broker();
    patient.plugin.becomes(&FakePlugin::builder().stderr("no session").exit_code(3));
    let get = patient.command(&broker.socket(), &["get", "dev"]).output().unwrap();
    assert!(!get.status.success());
    let (code, findings) = patient.findings(&broker.socket(), ".kube/config");
    assert_eq!(code, Some(1), "{findings:#?}");
    has(&findings, "warning versions:", "has version 0.0.1");
    has(
        &findings,
        "warning kubeconfig:",
        "run their plugin themselves: dev -> run `credbroker kubeconfig inject`",
    );
    has(&findings, "error failures:", "-> run `credbroker refresh dev`");
    has(&findings, "ok PATH:", "the broker finds the plugins where your shell does");
    has(&findings, "warning clock:", "timedatectl set-ntp true");

    fs::remove_file(patient.plugin.path()).unwrap();
    // The broker looks at the files of plugins every two seconds.
    let is_found = || {
        let (_, findings) = patient.findings(&broker.socket(), ".kube/config");
        findings.iter().any(|line| line.starts_with("error plugins:") && line.contains("dev"))
    };
    let begun = Instant::now();
    while !is_found() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the broker does not miss the plugin");
    }
}

#[test]
fn users_whose_definition_or_shim_is_missing_are_errors() {
    let patient = Patient::new();
    let broker = patient.broker();
    let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/absent/credbroker-exec",
        "args": ["--provider", "dev", "--definition", "0".repeat(40)], "interactiveMode": "Never"});
    Kubeconfig::new().exec_user("lost", &stanza).write(patient.path("lost"));
    let (code, findings) = patient.findings(&broker.socket(), "lost");
    assert_eq!(code, Some(1));
    has(
        &findings,
        "error kubeconfig: these users",
        "run a credbroker-exec of an earlier version, without the original command: lost -> run `export KUBECONFIG=",
    );
    has(&findings, "error kubeconfig: these users", "name a credbroker-exec that does not exist: lost");
    fs::write(patient.path("broken"), "users: [").unwrap();
    assert_eq!(patient.findings(&broker.socket(), "broken").0, Some(78));
}

#[test]
fn the_files_that_select_accounts_are_listed() {
    let patient = Patient::new();
    let mut stanza = patient.plugin.exec_stanza();
    stanza["command"] = json!("gcloud");
    let kubeconfig = Kubeconfig::new().cluster("c", &json!({"server": "https://cluster.example"}));
    kubeconfig.exec_user("dev", &stanza).context("x", "c", "dev").write(patient.path(".kube/gcloud"));
    let (_, findings) = patient.findings(Path::new("/nowhere"), ".kube/gcloud");
    has(&findings, "ok account files: after you change these files", "/.config/gcloud/active_config, ");
}

#[test]
fn without_a_broker_the_rest_is_checked_too() {
    let patient = Patient::new();
    fs::remove_file(patient.plugin.path()).unwrap();
    let (code, findings) = patient.findings(&patient.path("absent.sock"), ".kube/config");
    assert_eq!(code, Some(69));
    has(&findings, "error socket:", "credbroker serve");
    has(&findings, "ok configuration:", ".kube/config: ok");
    has(&findings, "error plugins:", "is not installed; providers that need it: dev -> install it");
    fs::create_dir_all(patient.path(".config/credbroker")).unwrap();
    fs::set_permissions(patient.path(".config"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(patient.path(".config/credbroker"), fs::Permissions::from_mode(0o700)).unwrap();
    credbroker_test_support::private_file(&patient.path(".config/credbroker/config.yaml"), "knid: x\n");
    let (_, findings) = patient.findings(&patient.path("absent.sock"), ".kube/config");
    has(&findings, "error configuration:", "unknown key `knid`");
}

#[test]
fn a_plugin_that_cannot_be_executed_is_an_error_with_and_without_a_broker() {
    let patient = Patient::new();
    let broker = patient.broker();
    for mode in [0o000, 0o644] {
        fs::set_permissions(patient.plugin.path(), fs::Permissions::from_mode(mode)).unwrap();
        for socket in [broker.socket(), patient.path("absent.sock")] {
            let (_, findings) = patient.findings(&socket, ".kube/config");
            let remedy = format!("-> run `chmod +x {}`", patient.plugin.path().display());
            has(&findings, "error plugins:", "cannot be executed");
            has(&findings, "error plugins:", &format!("providers that need it: dev {remedy}"));
        }
    }
}

#[test]
fn of_many_users_that_are_not_brokered_the_first_and_a_count_are_named() {
    let patient = Patient::new();
    let mut kubeconfig = Kubeconfig::new();
    for name in ["a", "b", "c", "d", "e"] {
        kubeconfig = kubeconfig.exec_user(name, &patient.plugin.exec_stanza());
    }
    kubeconfig.write(patient.path(".kube/config"));
    let broker = patient.broker();
    let (_, findings) = patient.findings(&broker.socket(), ".kube/config");
    has(
        &findings,
        "warning kubeconfig:",
        "run their plugin themselves: a, b, c and 2 more -> run `credbroker kubeconfig inject`",
    );
    let status = |args: &[&str]| {
        let output = patient.command(&broker.socket(), args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let line =
        "Users that run their plugin themselves: a, b, c and 2 more; run `credbroker kubeconfig inject`.";
    assert!(status(&["status"]).contains(line), "{}", status(&["status"]));
    let document: Value = serde_json::from_str(&status(&["status", "-o", "json"])).unwrap();
    assert_eq!(document["notBrokered"], json!(["a", "b", "c", "d", "e"]));
    assert!(!status(&["status", "a"]).contains("themselves"));
    assert!(patient.command(&broker.socket(), &["kubeconfig", "inject"]).output().unwrap().status.success());
    assert!(!status(&["status"]).contains("themselves"));
}

#[test]
fn a_plugin_that_systemd_does_not_find_is_named() {
    let patient = Patient::new();
    let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "tool", "interactiveMode": "Never"});
    Kubeconfig::new().exec_user("dev", &stanza).write(patient.path(".kube/config"));
    patient.tool("tool", "true");
    patient.tool("systemctl", "echo PATH=/nowhere");
    let (_, findings) = patient.findings(&patient.path("absent.sock"), ".kube/config");
    has(&findings, "warning PATH:", "does not find tool where your shell does -> run `credbroker setup`");
    patient.tool("systemctl", "exit 1");
    let (_, findings) = patient.findings(&patient.path("absent.sock"), ".kube/config");
    has(&findings, "note PATH:", "neither `credbroker setup` nor systemd");
}
