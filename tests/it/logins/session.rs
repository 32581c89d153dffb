//! The session of the user who starts a run.

use std::process::Command;

use super::*;

const PROMPT: &str = "open https://issuer.example/device";

/// A plugin that keeps its environment of each run, and then waits as [`Prompting`].
fn recording() -> Prompting {
    let plugin = Prompting::new(PROMPT);
    let behavior = fs::read_to_string(plugin.0.dir().join("behavior")).unwrap();
    fs::write(plugin.0.dir().join("behavior"), format!("env > \"$dir/env-$run\"\n{behavior}")).unwrap();
    plugin
}

/// The variables of a session that run number `run` had.
fn session_of(plugin: &Prompting, run: usize) -> Vec<String> {
    let environment = fs::read_to_string(plugin.0.dir().join(format!("env-{run}"))).unwrap();
    let names = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_AUTH_SOCK"];
    let is_of_session =
        |line: &&str| names.iter().any(|name| line.split_once('=').is_some_and(|(n, _)| n == *name));
    let mut lines: Vec<_> = environment.lines().filter(is_of_session).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// A broker in a session with a screen, which passes all of its environment to plugins.
fn broker_with_screen(plugin: &Prompting, timeout: &str) -> Broker {
    let mut provider = plugin.provider(timeout);
    provider["passEnv"] = json!(["*"]);
    let broker = Broker::builder(PROGRAM).providers(&json!([provider]));
    broker.env("DISPLAY", ":9").env("BROWSER", "other").env("SSH_AUTH_SOCK", "/broker").start()
}

fn shim_with_screen(broker: &Broker) -> Terminal {
    let socket = broker.socket();
    let variables = [
        ("CREDBROKER_SOCKET", socket.as_os_str()),
        ("TERM", "xterm".as_ref()),
        ("DISPLAY", ":1".as_ref()),
        ("BROWSER", "firefox".as_ref()),
    ];
    Terminal::start(PROGRAM, ["shim", "--provider", "p"], variables)
}

#[test]
fn a_run_has_the_session_of_the_person_who_started_it_and_no_other_run_has_a_screen() {
    let plugin = recording();
    let broker = broker_with_screen(&plugin, "20s");
    let shim = shim_with_screen(&broker);
    shim.wait_for(PROMPT);
    plugin.says("approved");
    assert!(shim.end().0.success());
    assert_eq!(session_of(&plugin, 1), ["BROWSER=firefox", "DISPLAY=:1", "SSH_AUTH_SOCK=/broker"]);
    let refresh = Command::new(PROGRAM).args(["refresh", "p", "--socket"]).arg(broker.socket()).spawn();
    plugin.says("approved");
    assert!(refresh.unwrap().wait().unwrap().success());
    assert_eq!(session_of(&plugin, 2), ["SSH_AUTH_SOCK=/broker"]);
}

#[test]
fn a_run_that_a_person_starts_is_attended_from_its_start() {
    let plugin = recording();
    let broker = broker_with_screen(&plugin, "1s"); // the shim attends it a second after the start
    let shim = shim_with_screen(&broker);
    shim.wait_for("poll 4");
    plugin.says("approved");
    assert!(shim.end().0.success());
    assert_eq!(plugin.0.runs(), 1);
}

#[test]
fn a_run_that_is_under_way_is_not_changed() {
    let plugin = recording();
    let broker = broker_with_screen(&plugin, "20s");
    let mut program = Command::new(PROGRAM);
    program.args(["shim", "--provider", "p", "--socket"]).arg(broker.socket()).env_clear();
    let mut program = program.stdout(std::process::Stdio::null()).spawn().unwrap();
    while plugin.0.runs() == 0 {
        std::thread::yield_now();
    }
    let shim = shim_with_screen(&broker);
    shim.wait_for(PROMPT);
    plugin.says("approved");
    assert!(shim.end().0.success() && program.wait().unwrap().success());
    assert_eq!((session_of(&plugin, 1), plugin.0.runs()), (vec!["SSH_AUTH_SOCK=/broker".to_owned()], 1));
}
