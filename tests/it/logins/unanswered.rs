//! Prompts that no user answers, and `credbroker login` and `logout`.

use std::process::{Command, Output};

use super::*;

const PROMPT: &str = "open https://issuer.example/device";

fn without_terminal(broker: &Broker, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--socket").arg(broker.socket()).env_clear().output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn after_three_prompts_without_an_answer_only_a_login_runs_the_plugin() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("1s")]));
    let shim_without = || without_terminal(&broker, &["shim", "--provider", "p"]);
    let refused = loop {
        let output = shim_without();
        assert!(output.stdout.is_empty() && !output.status.success());
        let stderr = text(&output.stderr);
        assert!(stderr.contains("run `credbroker login p` at a terminal"), "{stderr}");
        if stderr.contains("INTERACTION_REQUIRED") {
            break stderr;
        }
        assert!(stderr.contains("PLUGIN_TIMEOUT") && !stderr.contains(PROMPT), "its code is void: {stderr}");
    };
    assert!(refused.contains("no user answered its last 3 prompts"), "{refused}");
    let (status, _, shown) = shim(&broker).end();
    assert!(!status.success() && shown.contains("INTERACTION_REQUIRED"), "{shown}");
    assert_eq!(plugin.0.runs(), 3);

    let login = at_terminal(&broker, &["login", "p"]);
    login.wait_for(PROMPT);
    login.wait_for("poll 4");
    plugin.says("approved");
    let (status, stdout, shown) = login.end();
    assert!(status.success() && stdout.contains("PROVIDER") && stdout.contains("token"), "{stdout}{shown}");
    assert!(text(&shim_without().stdout).contains("token-4"));
}

#[test]
fn a_login_runs_the_plugin_again_and_a_logout_forgets_what_it_brought() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = broker(&json!([provider("p", &plugin)]));
    let token = || text(&without_terminal(&broker, &["get", "p", "-o", "token"]).stdout);
    assert_eq!(token(), "token-1\n");
    let (status, stdout, shown) = at_terminal(&broker, &["login", "p"]).end();
    assert!(status.success() && shown.is_empty(), "{stdout}{shown}");
    assert_eq!(token(), "token-2\n");
    let output = without_terminal(&broker, &["logout", "p"]);
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("evicted 1 credential of provider p\n"), "{stdout}");
    assert!(stdout.contains("may keep its own login"), "{stdout}");
    assert_eq!(token(), "token-3\n");
}

#[test]
fn a_login_needs_a_terminal_and_its_errors_are_those_of_a_get() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = broker(&json!([provider("p", &plugin)]));
    let output = without_terminal(&broker, &["login", "p"]);
    assert_eq!((output.status.code(), plugin.runs()), (Some(2), 0));
    assert!(text(&output.stderr).contains("not a terminal"));
    let (status, stdout, shown) = at_terminal(&broker, &["login", "q"]).end();
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""));
    assert!(shown.contains("UNKNOWN_PROVIDER"), "{shown}");
}
