//! Plugins that read from a terminal run in that of the user who asks.

use std::{
    process::{Command, Stdio},
    thread::yield_now,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::*;

/// Asks for a password on its terminal, without echo.
const PASSWORD: &str = r#"
trap 'stty echo; echo "asked to end" >&2; exit 9' TERM
stty -echo || exit 5
printf 'Password for test: ' >&2
read password
stty echo
echo >&2
test "$password" = s3cret-canary || { echo "wrong password" >&2; exit 4; }
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "token-'$run'"}}'
"#;
const PROMPT: &str = "Password for test: ";

/// A plugin with this script, as the provider `p` with this `interactiveMode`.
struct Reading(FakePlugin, Value);

impl Reading {
    fn new(script: &str, mode: &str) -> Self {
        let plugin = FakePlugin::script(script);
        let mut provider = provider("p", &plugin);
        provider["execConfig"]["interactiveMode"] = json!(mode);
        Self(plugin, provider)
    }

    fn broker(&self) -> Broker {
        Broker::builder(PROGRAM).providers(&json!([self.1])).arg("-vvv").start()
    }

    fn runs(&self) -> usize {
        self.0.runs()
    }
}

/// A shim without a terminal: its exit code, standard output and standard error.
fn without_terminal(broker: &Broker) -> (Option<i32>, String, String) {
    let mut shim = Command::new(PROGRAM);
    shim.args(["shim", "--provider", "p", "--socket"]).arg(broker.socket()).env_clear().env("TERM", "xterm");
    let output = shim.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn enter(terminal: &mut Terminal) {
    terminal.wait_for(PROMPT);
    terminal.types("s3cret-canary\n");
}

#[test]
fn a_password_is_asked_in_the_terminal_of_the_shim_and_one_serves_all() {
    let plugin = Reading::new(PASSWORD, "Always");
    let broker = plugin.broker();
    let mut first = shim(&broker);
    enter(&mut first);
    let (status, stdout, shown) = first.end();
    assert!(status.success() && stdout.contains("token-1"), "{shown}");
    assert!(!shown.contains("s3cret-canary"), "the plugin has turned the echo off: {shown}");
    assert!(shown.starts_with(PROMPT), "{shown:?}");
    let (status, stdout, shown) = shim(&broker).end();
    assert!(status.success() && stdout.contains("token-1") && shown.is_empty(), "{shown}");
    let (code, stdout, _) = without_terminal(&broker);
    assert!(code == Some(0) && stdout.contains("token-1"));
    assert_eq!(plugin.runs(), 1);
    assert!(plugin.0.exec_infos()[0].contains(r#""interactive":true"#));
    let (_, log) = broker.stop();
    assert!(!log.contains("canary") && !log.contains("token-1"), "{log}");
    assert!(log.contains("plugin run finished"), "{log}");
}

#[test]
fn a_login_asks_again_although_there_is_a_credential() {
    let plugin = Reading::new(PASSWORD, "Always");
    let broker = plugin.broker();
    let mut first = shim(&broker);
    enter(&mut first);
    assert!(first.end().1.contains("token-1"));
    let mut wrong = at_terminal(&broker, &["login", "p"]);
    wrong.wait_for(PROMPT);
    wrong.types("no\n");
    let (status, stdout, shown) = wrong.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""));
    assert!(shown.contains("wrong password") && shown.contains("PLUGIN_EXIT"), "{shown}");
    assert!(without_terminal(&broker).1.contains("token-1"), "the old one is served");
    let mut login = at_terminal(&broker, &["login", "p"]);
    enter(&mut login);
    let (status, stdout, shown) = login.end();
    assert!(status.success() && stdout.contains("PROVIDER"), "{stdout}{shown}");
    assert!(without_terminal(&broker).1.contains("token-3"));
}

#[test]
fn after_a_wrong_password_the_next_command_asks_again_and_the_same_one_does_not() {
    let plugin = Reading::new(PASSWORD, "Always");
    let broker = plugin.broker();
    let socket = broker.socket();
    let variables = [("CREDBROKER_SOCKET", socket.as_os_str()), ("TERM", "xterm".as_ref())];
    // As kubectl, which runs its plugin again. With more arguments, the shell itself counts as the client.
    let script = format!("{PROGRAM} shim --provider p; {PROGRAM} shim --provider p; exit $?");
    let mut first = Terminal::start("/bin/sh", ["-c", &script, "sh"], variables);
    first.wait_for(PROMPT);
    first.types("no\n");
    let (status, stdout, shown) = first.end();
    assert_eq!((status.code(), stdout.as_str(), plugin.runs()), (Some(1), "", 1), "{shown}");
    assert_eq!(
        shown.matches("credbroker-exec: run `credbroker login p` at a terminal: ").count(),
        2,
        "{shown}"
    );
    assert!(!shown.contains("credbroker refresh") && !shown.contains("try again in"), "{shown}");
    let mut second = shim(&broker);
    enter(&mut second);
    let (status, stdout, shown) = second.end();
    assert!(status.success() && stdout.contains("token-2"), "{shown}");
}

#[test]
fn without_a_terminal_there_is_an_error_and_nothing_else() {
    for mode in ["Always", "IfAvailable"] {
        let plugin = Reading::new(PASSWORD, mode);
        let broker = plugin.broker();
        let (code, stdout, stderr) = without_terminal(&broker);
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (Some(1), "", 1), "{stderr}");
        assert!(stderr.contains("INTERACTION_REQUIRED"), "{stderr}");
        assert!(stderr.contains("run `credbroker login p` at a terminal"), "{stderr}");
        assert_eq!(plugin.runs(), usize::from(mode == "IfAvailable"));
    }
}

/// The first run of such a plugin shows that it needs a terminal.
#[test]
fn a_plugin_that_may_use_a_terminal_gets_one_if_it_insists() {
    for args in [["shim", "--provider=p"], ["login", "p"]] {
        let plugin = Reading::new(PASSWORD, "IfAvailable");
        let broker = plugin.broker();
        let mut terminal = at_terminal(&broker, &args);
        enter(&mut terminal);
        let (status, _, shown) = terminal.end();
        assert!(status.success(), "{shown}");
        assert!(without_terminal(&broker).1.contains("token-2"));
        assert_eq!(plugin.runs(), 2);
    }
}

#[test]
fn a_plugin_that_needs_no_terminal_gets_none() {
    const SCRIPT: &str = r#"
if test -t 0 || test -t 2 || (: < /dev/tty); then terminal=yes; else terminal=no; fi 2> /dev/null
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "terminal-'$terminal'"}}'
"#;
    for mode in ["Never", "IfAvailable"] {
        let plugin = Reading::new(SCRIPT, mode);
        let broker = plugin.broker();
        for args in [["shim", "--provider=p"], ["login", "p"]] {
            let (status, _, shown) = at_terminal(&broker, &args).end();
            assert!(status.success(), "{shown}");
        }
        assert!(without_terminal(&broker).1.contains("terminal-no"));
    }
    let plugin = Reading::new("echo 'cannot open /dev/tty' >&2; exit 1", "Never");
    let broker = plugin.broker();
    let (status, _, shown) = shim(&broker).end();
    assert!(!status.success() && shown.contains("INTERACTION_REQUIRED"), "{shown}");
    assert_eq!(plugin.runs(), 1);
}

#[test]
fn of_two_shims_one_runs_the_plugin_and_the_other_waits_for_it() {
    let plugin = Reading::new(PASSWORD, "Always");
    let broker = plugin.broker();
    let mut first = shim(&broker);
    first.wait_for(PROMPT);
    let second = shim(&broker);
    second.wait_for("the plugin runs in the terminal of process");
    enter(&mut first);
    for client in [first, second] {
        let (status, stdout, _) = client.end();
        assert!(status.success() && stdout.contains("token-1"));
    }
    assert_eq!(plugin.runs(), 1);
}

#[test]
fn when_the_shim_is_killed_the_next_one_gets_the_lease() {
    let plugin = Reading::new(PASSWORD, "Always");
    let broker = plugin.broker();
    let first = shim(&broker);
    first.wait_for(PROMPT);
    let mut second = shim(&broker);
    second.wait_for("the plugin runs in the terminal of process");
    let process = Pid::from_raw(first.pid().cast_signed()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    enter(&mut second);
    let (status, stdout, shown) = second.end();
    assert!(status.success() && stdout.contains("token-2"), "{shown}");

    Command::new(PROGRAM).args(["evict", "p", "--socket"]).arg(broker.socket()).output().unwrap();
    let mut third = shim(&broker);
    third.wait_for(PROMPT);
    third.interrupt();
    assert!(!third.end().0.success());
    // A run that went on would block this one.
    let (_, _, stderr) = without_terminal(&broker);
    assert!(stderr.contains("INTERACTION_REQUIRED"), "{stderr}");
}

#[test]
fn a_prompt_that_is_not_answered_ends_with_the_interactive_timeout() {
    let mut plugin = Reading::new(PASSWORD, "Always");
    (plugin.1["timeout"], plugin.1["interactiveTimeout"]) = (json!("1s"), json!("2s"));
    let broker = plugin.broker();
    let client = shim(&broker);
    client.wait_for("asked to end");
    let (status, stdout, shown) = client.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""));
    assert!(shown.contains("ran longer than 2s (the provider's `interactiveTimeout`)"), "{shown}");
    assert_eq!(plugin.runs(), 1);
}

/// With access rules, only a user who is alone with the credential may run its plugin: another one would get a forgery.
#[test]
fn a_key_that_another_user_may_get_is_not_lent() {
    let own = geteuid().as_raw();
    for (peers, is_lent) in [
        (json!({"uids": [own]}), true),
        (json!({"uids": [own, own + 7]}), false),
        (json!({"uids": [own], "executables": ["/usr/bin/kubectl"]}), true),
        (json!({"listeners": ["default"]}), false),
    ] {
        let plugin = Reading::new(PASSWORD, "Always");
        let allow = json!({"providers": ["p"], "verbs": ["get"]});
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": [plugin.1],
            "access": [{"name": "own", "peers": {"uids": [own]}, "allow": allow}, {"name": "r", "peers": peers, "allow": allow}],
        });
        let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
        let mut client = shim(&broker);
        if is_lent {
            enter(&mut client);
        }
        let (status, _, shown) = client.end();
        assert_eq!((status.success(), plugin.runs()), (is_lent, usize::from(is_lent)), "{peers}: {shown}");
        assert_eq!(shown.contains("INTERACTION_REQUIRED"), !is_lent, "{shown}");
    }
}

/// Makes another configuration active.
fn reload(broker: &Broker, config: &Value) {
    let file = broker.socket().ancestors().nth(2).unwrap().join("config.yaml");
    fs::write(file, config.to_string()).unwrap();
    let reloads = || broker.log().matches("has changed and is active").count();
    let before = reloads();
    kill_process(Pid::from_raw(broker.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
    while reloads() == before {
        yield_now();
    }
}

/// A rule for the broker's own user, and one for these peers.
fn shared(plugin: &Reading, peers: &Value) -> Value {
    let allow = json!({"providers": ["p"], "verbs": ["get"]});
    json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": [plugin.1],
        "access": [
            {"name": "own", "peers": {"uids": [geteuid().as_raw()]}, "allow": allow},
            {"name": "r", "peers": peers, "allow": allow},
        ],
    })
}

/// The user of the terminal could have forged it.
#[test]
fn a_credential_of_a_terminal_is_forgotten_when_a_reload_gives_it_to_others() {
    let own = geteuid().as_raw();
    let plugin = Reading::new(PASSWORD, "Always");
    let alone = shared(&plugin, &json!({"uids": [own]}));
    let broker = Broker::builder(PROGRAM).config(&alone.to_string()).start();
    let others = [json!({"uids": [own + 7]}), json!({"gids": [own + 7]}), json!({"listeners": ["default"]})];
    for (run, peers) in (1..).zip(others) {
        let mut client = shim(&broker);
        enter(&mut client);
        assert!(client.end().0.success());
        assert!(without_terminal(&broker).1.contains(&format!("token-{run}")));
        reload(&broker, &shared(&plugin, &peers));
        let (code, stdout, stderr) = without_terminal(&broker);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{peers}: {stderr}");
        assert!(stderr.contains("INTERACTION_REQUIRED"), "{peers}: {stderr}");
        reload(&broker, &alone);
        assert!(!without_terminal(&broker).1.contains("token"), "{peers}: it is gone for its user too");
    }
    assert_eq!(plugin.runs(), 3);
}

#[test]
fn a_run_in_a_terminal_ends_when_a_reload_gives_its_credential_to_others() {
    let own = geteuid().as_raw();
    let plugin = Reading::new(PASSWORD, "Always");
    let alone = shared(&plugin, &json!({"uids": [own]}));
    let broker = Broker::builder(PROGRAM).config(&alone.to_string()).start();
    let client = shim(&broker);
    client.wait_for(PROMPT);
    reload(&broker, &shared(&plugin, &json!({"uids": [own + 7]})));
    let (status, stdout, shown) = client.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""), "{shown}");
    assert!(shown.contains("INTERACTION_REQUIRED"), "{shown}");
    reload(&broker, &alone);
    assert!(!without_terminal(&broker).1.contains("token"));
    assert_eq!(plugin.runs(), 1);
}

/// The broker does not start the plugin here, but its processes are those of a run all the same.
#[test]
fn what_a_leased_plugin_starts_gets_nothing() {
    let script = format!(
        "env -i TERM=xterm {PROGRAM} shim --provider p --socket \"$(cat $dir/socket)\" > $dir/said 2>&1; echo > $dir/done"
    );
    let plugin = Reading::new(&script, "Always");
    let broker = plugin.broker();
    fs::write(plugin.0.dir().join("socket"), broker.socket().to_str().unwrap()).unwrap();
    let client = shim(&broker);
    while !plugin.0.dir().join("done").exists() {
        yield_now();
    }
    let said = fs::read_to_string(plugin.0.dir().join("said")).unwrap();
    assert!(said.contains("RECURSION"), "{said}");
    assert!(!client.end().0.success());
    assert_eq!(plugin.runs(), 1);
}
