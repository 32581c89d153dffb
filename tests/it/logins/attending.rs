//! Attending runs that wait for a user elsewhere, as in a browser.

use std::process::{Command, Stdio};

use super::*;

const PROMPT: &str = "open https://issuer.example/device and enter ABCD-EFGH";

#[test]
fn a_prompt_is_seen_line_by_line_and_the_login_may_take_longer_than_the_timeout() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("2s")]));
    let shim = shim(&broker);
    shim.wait_for(PROMPT);
    shim.wait_for("poll 6"); // three seconds after the start
    plugin.says("approved");
    let (status, stdout, shown) = shim.end();
    assert!(status.success() && stdout.contains("token-1"), "{shown}");
    assert_eq!(shown.matches(PROMPT).count(), 1, "{shown}");
    assert_eq!(plugin.0.runs(), 1);
}

#[test]
fn ten_clients_show_the_prompt_of_one_run_and_a_late_one_shows_it_from_the_first_line() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("2s")]));
    let mut clients: Vec<_> = (0..9).map(|_| shim(&broker)).collect();
    clients[0].wait_for("poll 3");
    clients.push(shim(&broker));
    for client in &clients {
        client.wait_for(PROMPT);
        client.wait_for("poll 1");
    }
    plugin.says("approved");
    for client in clients {
        let (status, stdout, shown) = client.end();
        assert!(status.success() && stdout.contains("token-1"), "{shown}");
        assert_eq!(shown.matches(PROMPT).count(), 1, "{shown}");
    }
    assert_eq!(plugin.0.runs(), 1);
}

#[test]
fn ctrl_c_in_one_leaves_the_others() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("2s")]));
    let (mut first, second) = (shim(&broker), shim(&broker));
    for client in [&first, &second] {
        client.wait_for(PROMPT);
    }
    first.interrupt();
    let (status, stdout, _) = first.end();
    assert!(!status.success() && stdout.is_empty());
    second.wait_for("poll 6");
    plugin.says("approved");
    assert!(second.end().0.success());
}

#[test]
fn when_the_last_client_leaves_the_timeout_applies() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("2s")]));
    let mut client = shim(&broker);
    client.wait_for("poll 6");
    client.interrupt();
    client.end();
    // The run ends, and so does its end of the pipe; a run that went on would block the next.
    let status = || Command::new(PROGRAM).args(["status", "--socket"]).arg(broker.socket()).output().unwrap();
    while !String::from_utf8_lossy(&status().stdout).contains("PLUGIN_TIMEOUT") {}
}

#[test]
fn a_failure_is_one_line_after_the_plugins_words() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("2s")]));
    let client = shim(&broker);
    client.wait_for(PROMPT);
    plugin.says("denied");
    let (status, stdout, shown) = client.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""));
    assert!(shown.contains("failed with exit code 4") && shown.contains("PLUGIN_EXIT"), "{shown}");
}

#[test]
fn nothing_that_the_terminal_would_obey_is_shown() {
    let plugin = Prompting::new(r"\033]0;title\007 \033[2J code \0302\0233 \0342\0200\0256 end");
    let broker = broker(&json!([plugin.provider("20s")]));
    let client = shim(&broker);
    client.wait_for(" end");
    plugin.says("approved");
    let (status, _, shown) = client.end();
    assert!(status.success(), "{shown}");
    let ours = shown.replace("\r\u{1b}[K", "").replace("\r\n", "\n");
    assert!(ours.contains("U+001B]0;titleU+0007 U+001B[2J code U+009B U+202E end"), "{shown:?}");
    assert!(ours.chars().all(|character| character == '\n' || !character.is_control()), "{shown:?}");
}

#[test]
fn a_prompt_without_an_end_of_line_is_seen() {
    let plugin = FakePlugin::script(
        r#"printf 'Waiting for your browser' >&2; read outcome < "$dir/browser"; echo ' done' >&2; exit 5"#,
    );
    let made = Command::new("mkfifo").arg(plugin.dir().join("browser")).status();
    assert!(made.unwrap().success());
    let plugin = Prompting(plugin);
    let broker = broker(&json!([plugin.provider("20s")]));
    let client = shim(&broker);
    client.wait_for("Waiting for your browser");
    plugin.says("approved");
    assert_eq!(client.end().0.code(), Some(1));
}

#[test]
fn without_a_terminal_nothing_is_printed_and_the_timeout_holds() {
    let plugin = Prompting::new(PROMPT);
    let broker = broker(&json!([plugin.provider("2s")]));
    let shim = Command::new(PROGRAM)
        .args(["shim", "--provider", "p", "--socket"])
        .arg(broker.socket())
        .env_clear()
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&shim.stdout), String::from_utf8_lossy(&shim.stderr));
    assert_eq!((shim.status.code(), &*stdout), (Some(1), ""));
    assert!(stderr.contains("ran longer than 2s (the provider's `timeout`)"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// The prompts leave the slots of other runs, although there is only one.
#[test]
fn open_prompts_stop_no_other_run() {
    let (plugin, other) = (Prompting::new(PROMPT), FakePlugin::builder().token("other").build());
    let providers = json!([plugin.provider("20s"), provider("other", &other)]);
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": providers, "limits": {"pluginRuns": 1},
    });
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let client = shim(&broker);
    client.wait_for(PROMPT);
    let (status, stdout, _) = at_terminal(&broker, &["shim", "--provider", "other"]).end();
    assert!(status.success() && stdout.contains("other"), "{stdout}");
    plugin.says("approved");
    assert!(client.end().0.success());
}
