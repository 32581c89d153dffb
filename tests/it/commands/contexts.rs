//! Contexts in the place of names.

use std::{path::PathBuf, process::Output};

use credbroker_test_support::{Broker, FakePlugin, Home, Kubeconfig};
use serde_json::{Value, json};

use super::{PROGRAM, stderr, stdout};

const ARN: &str = "arn:aws:eks:eu-west-3:1:cluster/prod";

/// A user with two kubeconfigs, and a plugin for each account.
struct Person {
    home: Home,
    plugins: Vec<FakePlugin>,
    broker: Broker,
}

fn exec(plugin: &FakePlugin) -> Value {
    json!({"apiVersion": "client.authentication.k8s.io/v1", "command": plugin.path(), "interactiveMode": "Never",
        "provideClusterInfo": true, "env": [{"name": "AWS_PROFILE", "value": "prod"}]})
}

impl Person {
    fn new() -> Self {
        let home = Home::own();
        let plugin = |token: &str| FakePlugin::builder().token(token).expires_in(3600).build();
        let plugins: Vec<_> = ["prod", "admin", "team", "dev"].map(plugin).into();
        let own = Kubeconfig::new()
            .cluster("c", &json!({"server": "https://c.example"}))
            .cluster("d", &json!({"server": "https://d.example"}))
            .exec_user(ARN, &exec(&plugins[0]))
            .exec_user("admin", &exec(&plugins[1]))
            .exec_user("dev", &exec(&plugins[3]))
            .exec_user("gke", &exec(&plugins[1]))
            .user("robot", &json!({"token": "c4n4ry"}))
            .user("basic", &json!({"username": "u", "password": "c4n4ry"}))
            .context("prod", "c", ARN)
            .context("other", "d", ARN)
            .context("legacy", "c", "admin")
            .context("dev", "c", ARN)
            .context("robot", "c", "robot")
            .context("basic", "c", "basic")
            .context("gke", "c", "gke");
        let team = Kubeconfig::new()
            .cluster("c", &json!({"server": "https://c.example"}))
            .exec_user("admin", &exec(&plugins[2]))
            .exec_user("gke", &exec(&plugins[2]))
            .context("team", "c", "admin")
            .context("gke", "c", "gke");
        home.write("own", own.to_yaml(), 0o600);
        home.write("team", team.to_yaml(), 0o600);
        let both = std::env::join_paths([home.path("own"), home.path("team")]).unwrap();
        let broker = Broker::builder(PROGRAM).kubeconfig(both).start();
        Self { home, plugins, broker }
    }

    fn run_with(&self, files: &[&str], args: &[&str]) -> Output {
        let files: Vec<PathBuf> = files.iter().map(|file| self.home.path(file)).collect();
        let mut command = self.home.command(PROGRAM);
        command.args(args).env("CREDBROKER_SOCKET", self.broker.socket());
        command.env("KUBECONFIG", std::env::join_paths(files).unwrap()).output().unwrap()
    }

    /// Standard output and error of a command that succeeds.
    #[track_caller]
    fn says(&self, args: &[&str]) -> (String, String) {
        let output = self.run_with(&["own", "team"], args);
        assert!(output.status.success(), "{}", stderr(&output));
        (stdout(&output), stderr(&output))
    }

    fn runs(&self) -> Vec<usize> {
        self.plugins.iter().map(FakePlugin::runs).collect()
    }
}

#[test]
fn a_context_is_its_user_and_the_default_is_the_current_one() {
    let person = Person::new();
    let said = format!("credbroker: context `prod`: user `{ARN}`\n");
    for args in [&["get", "prod", "-o", "token"][..], &["get", "-o", "token"]] {
        assert_eq!(person.says(args), ("prod\n".to_owned(), said.clone()));
    }
    // It is the credential of kubectl, whose shim sends the cluster and the variables of the stanza.
    assert_eq!(person.runs(), [1, 0, 0, 0]);
    person.says(&["kubeconfig", "wrap", "--bare", "-o", person.home.path("copy").to_str().unwrap()]);
    let output = person.run_with(&["copy"], &["get", "prod", "-o", "token"]);
    assert_eq!((stdout(&output), stderr(&output)), ("prod\n".to_owned(), said.clone()));
    assert_eq!(person.runs(), [1, 0, 0, 0]);

    for args in [&["explain", "prod"][..], &["explain"], &["refresh", "prod"], &["refresh"]] {
        let (out, err) = person.says(args);
        assert!(out.contains(ARN) && err.starts_with(&said), "{out}{err}");
    }
    assert_eq!(person.runs(), [3, 0, 0, 0]);
    for args in [&["evict", "prod"][..], &["logout", "prod"], &["evict"], &["logout"]] {
        person.says(&["get"]);
        let (out, err) = person.says(args);
        assert!(out.contains("evicted 1 credential") && err == said, "{out}{err}");
    }
    let (out, err) = person.says(&["get", "--context", "other"]);
    assert!(out.contains(ARN) && err.starts_with("credbroker: context `other`"), "{out}{err}");
}

#[test]
fn a_provider_wins_over_a_context_of_its_name() {
    let person = Person::new();
    let output = person.run_with(&["own"], &["get", "dev", "-o", "token", "--context", "prod"]);
    assert_eq!((stdout(&output), stderr(&output)), ("dev\n".to_owned(), String::new()));
}

#[test]
fn the_contexts_tell_users_of_one_name_apart() {
    let person = Person::new();
    let output = person.run_with(&["own", "team"], &["get", "admin"]);
    let error = stderr(&output);
    let (own, team) = (person.home.path("own"), person.home.path("team"));
    let listed = format!("`legacy` of {}, `team` with KUBECONFIG={}", own.display(), team.display());
    assert!(error.contains(&format!("name a context: {listed}\n")), "{error}");
    assert!(error.contains("AMBIGUOUS_PROVIDER") && !error.contains("--definition"), "{error}");
    for (files, name, token) in [
        (&["own", "team"][..], "legacy", "admin\n"),
        (&["own", "team"], "team", "admin\n"), // as kubectl reads the list
        (&["team"], "team", "team\n"),
        (&["own"], "admin", "admin\n"),
        (&["team"], "admin", "team\n"),
        (&["own", "team"], "gke", "admin\n"), // the provider is ambiguous, and the context is not
        (&["team"], "gke", "team\n"),
    ] {
        let output = person.run_with(files, &["get", name, "-o", "token"]);
        assert_eq!(stdout(&output), token, "{files:?} {name}: {}", stderr(&output));
    }
}

#[test]
fn a_context_whose_user_has_a_token_is_one_that_the_broker_serves() {
    let person = Person::new();
    let said = "credbroker: context `robot`\n".to_owned();
    for args in [&["get", "robot", "-o", "token"][..], &["get", "--context", "robot", "-o", "token"]] {
        assert_eq!(person.says(args), ("c4n4ry\n".to_owned(), said.clone()), "{args:?}");
    }
    let (out, err) = person.says(&["evict", "robot"]);
    assert!(out.contains("evicted 1 credential") && err == said, "{out}{err}");
    let (out, _) = person.says(&["clusters", "--contexts"]);
    let server = |name: &str| {
        out.lines().find(|line| line.starts_with(name)).is_some_and(|line| line.contains("https://c.example"))
    };
    assert!(server("robot ") && server("prod ") && !out.contains("c4n4ry"), "{out}");
    assert_eq!(person.runs(), [0; 4]);
}

#[test]
fn what_leads_to_no_credential_is_an_error_that_names_it() {
    let person = Person::new();
    for (files, args, code, expected) in [
        (&["own"][..], &["get", "basic"][..], 1, "context `basic`: user `basic` runs no plugin"),
        (&["own"], &["get", "prid"], 1, "UNKNOWN_PROVIDER"),
        (&["none"], &["get"], 2, "there is no current context"),
        (&["none"], &["evict"], 2, "there is no current context"),
        (&["none"], &["get", "prod"], 1, "UNKNOWN_PROVIDER"),
        (&["own"], &["get", "--context", "none"], 1, "has no context `none`; its contexts are: prod"),
    ] {
        let output = person.run_with(files, args);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(expected) && !error.contains("c4n4ry"), "{args:?}: {error}");
    }
    assert_eq!(person.runs(), [0; 4]);
}
