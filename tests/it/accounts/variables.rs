//! Accounts that variables select which are on no list, and what `status` says about them.

use super::*;

const SCW: (&str, &str) = ("SCW_PROFILE", "prod");

/// A kubeconfig whose user `rel` has the account of its plugin's `SCW_PROFILE`, and a broker of it with that of `prod`.
fn scw() -> (TempDir, FakePlugin, Broker) {
    let plugin =
        FakePlugin::builder().token_from_shell("\"as-${SCW_PROFILE-none}\"").expires_in(3600).build();
    let directory = private_directory();
    let original = directory.path().join("config");
    write(&original, &plugin);
    let broker = Broker::builder(PROGRAM).kubeconfig(&original).env(SCW.0, SCW.1).start();
    (directory, plugin, broker)
}

fn status(broker: &Broker, variables: &[(&str, &str)]) -> Vec<(Value, Value)> {
    let mut command = program(&["status", "-o", "json", "--socket"]);
    let output = command.arg(broker.socket()).envs(variables.iter().copied()).output().unwrap();
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let held = document["credentials"].as_array().unwrap().iter();
    held.map(|held| (held["account"]["SCW_PROFILE"].clone(), held["isOfCaller"].clone())).collect()
}

#[test]
fn each_shell_gets_the_account_that_it_selects_and_never_that_of_the_broker() {
    let (_directory, plugin, broker) = scw();
    for _ in 0..2 {
        for (variables, account) in [
            (&[("SCW_PROFILE", "dev")][..], "as-dev"),
            (&[], "as-none"),
            (&[SCW], "as-prod"),
            (&[("SCW_PROFILE", "")], "as-"),
        ] {
            assert_eq!(token(&shim(&broker.socket(), "rel", variables)), account);
        }
    }
    assert_eq!(plugin.runs(), 4);
    let wide = "x".repeat(65);
    token(&shim(&broker.socket(), "rel", &[("SCW_PROFILE", &wide)]));
    let mut found = status(&broker, &[SCW]);
    found.sort_by_key(|(account, _)| account.to_string());
    let cut = "x".repeat(63) + "…";
    let expected = [
        (json!(""), false),
        (json!("dev"), false),
        (json!("prod"), true),
        (json!(cut), false),
        (json!(null), false),
    ];
    assert_eq!(found, expected.map(|(account, is_of_caller)| (account, json!(is_of_caller))));
    let marked = status(&broker, &[]).into_iter().filter(|(_, is_of_caller)| *is_of_caller == true);
    assert_eq!(marked.collect::<Vec<_>>(), [(json!(null), json!(true))]);
    let (_, log) = broker.stop();
    assert!(!log.contains("prod") && !log.contains("dev"), "{log}");
}

/// What GitLab, Kubernetes and terminals set, differently for each job, container and window.
#[test]
fn variables_that_select_no_account_are_one_credential_and_no_error() {
    let (_directory, plugin, broker) = scw();
    let environments: [&[(&str, &str)]; 7] = [
        &[],
        &[
            ("CI_PROJECT_PATH", "group/project"),
            ("CI_PROJECT_ID", "7"),
            ("CI_DEPENDENCY_PROXY_PASSWORD", "c4n4ry"),
            ("RUNNER_TEMP_PROJECT_DIR", "/builds/group/project.tmp"),
            ("GITLAB_USER_ID", "7"),
        ],
        &[
            ("ACCOUNT_SERVICE_HOST", "10.0.0.7"),
            ("ACCOUNT_SERVICE_PORT_HTTP", "80"),
            ("ACCOUNT_PORT", "tcp://10.0.0.7:80"),
            ("ACCOUNT_PORT_80_TCP_ADDR", "10.0.0.7"),
            ("PROJECT_API_SERVICE_HOST", "10.0.0.8"),
            ("PROJECT_API_PORT_80_TCP", "tcp://10.0.0.8:80"),
        ],
        &[("ITERM_PROFILE", "Default"), ("ITERM_SESSION_ID", "w0t0p0:1")],
        &[("KONSOLE_PROFILE_NAME", "Shell"), ("KONSOLE_VERSION", "240500")],
        &[
            ("GNOME_TERMINAL_SCREEN", "/org/gnome/Terminal/screen/1"),
            ("TILIX_ID", "1"),
            ("PTYXIS_PROFILE", "1"),
        ],
        &[("WT_PROFILE_ID", "{61c54bbd}"), ("WT_SESSION", "1"), ("VSCODE_PROFILE", "work")],
    ];
    for variables in environments {
        assert_eq!(token(&shim(&broker.socket(), "rel", variables)), "as-none", "{variables:?}");
    }
    assert_eq!(plugin.runs(), 1);
}

#[test]
fn an_account_that_a_configured_provider_does_not_take_is_warned_about_once() {
    let (broker, plugin) = profiles(&json!({"passEnv": ["*"]}), &[SCW]);
    for variables in [&[][..], &[("SCW_PROFILE", "dev")], &[("SCW_PROFILE", "dev")], &[SCW]] {
        assert_eq!(token(&shim(&broker.socket(), "eks", variables)), "none");
    }
    assert_eq!(plugin.runs(), 1);
    let chosen = [("SCW_PROFILE", "dev"), ("CREDBROKER_CALLER_ENV", "SCW_*")];
    assert!(failure(&shim(&broker.socket(), "eks", &chosen)).contains("IDENTITY_CONFLICT"));
    let (_, log) = broker.stop();
    assert_eq!(log.matches("the caller sets `SCW_PROFILE`").count(), 1, "{log}");
    assert!(!log.contains("dev"), "{log}");
}

#[test]
fn status_names_the_files_of_definitions_with_one_name() {
    let files = TwoFiles::new();
    let broker = files.broker_of_both();
    let (wrapped, _) = files.wrap("first", &broker.socket());
    token(&plugin_of(&wrapped, &[]));
    let shown = stdout(&program(&["status", "--socket"]).arg(broker.socket()).output().unwrap());
    for account in ["first", "second"] {
        assert!(shown.contains(&format!("rel ({})", files.file(account).display())), "{shown}");
    }
}
