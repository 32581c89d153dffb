//! `credbroker stop` and `credbroker restart`, as a user runs them.

use std::{
    fs,
    process::Stdio,
    sync::Mutex,
    thread::yield_now,
    time::{Duration, Instant},
};

use crate::{harness::Killed, setup::Person};

const SHIMS: usize = 100;

fn count(person: &Person, name: &str) -> usize {
    fs::read_to_string(person.path(name)).unwrap_or_default().lines().count()
}

/// Clients that ask again and again, as kubectl starts the shim. A plugin that the shim runs itself writes `direct`.
fn clients(person: &Person) -> Vec<Killed> {
    let kubeconfig = person.kubeconfig();
    let exec = kubeconfig.pointer("/users/0/user/exec").unwrap();
    let script = "while [ ! -e \"$HOME/run/end\" ]; do \"$@\" >/dev/null 2>>\"$HOME/run/said\" || echo >>\"$HOME/run/failed\"
        echo >>\"$HOME/run/answers\"; done";
    let client = || {
        let mut client = person.command("/bin/sh");
        client.args(["-c", script, "sh"]).arg(exec["command"].as_str().unwrap());
        client.args(exec["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
        client.env("PATH", "/usr/bin:/bin").env("DIRECT", "direct").stdout(Stdio::null());
        Killed(client.spawn().unwrap())
    };
    (0..SHIMS).map(|_| client()).collect()
}

/// Restarts the broker twice while clients ask. Returns a line for each plugin run.
fn restarts_under_load(person: &Person) -> String {
    // Two of these tests would keep each other waiting.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let clients = clients(person);
    let answers = |more: usize| {
        let (wanted, begun) = (count(person, "run/answers") + more, Instant::now());
        while count(person, "run/answers") < wanted {
            assert!(begun.elapsed() < Duration::from_secs(240), "the clients hang");
            yield_now();
        }
    };
    answers(2 * SHIMS);
    for _ in 0..2 {
        assert_eq!(person.said(&["restart"], 0), "Restarted.\n");
        answers(2 * SHIMS);
    }
    fs::write(person.path("run/end"), "").unwrap();
    for mut client in clients {
        client.0.wait().unwrap();
    }
    let said = fs::read_to_string(person.path("run/said")).unwrap_or_default();
    assert_eq!(count(person, "run/failed"), 0, "{said}");
    person.read("run/runs")
}

#[test]
fn a_restart_under_load_fails_no_client_and_runs_no_plugin_beside_the_broker() {
    let Some(person) = Person::new() else { return };
    person.said(&["setup", "--yes", "--no-systemd"], 0);
    assert_eq!(person.own_token(), "mine");
    let first = person.listener();
    let runs = restarts_under_load(&person);
    assert_ne!(person.listener(), first);
    assert!(runs.matches("direct").count() <= 1, "{runs}");
    assert_eq!(runs.lines().filter(|line| line.is_empty()).count(), 3, "one run of each broker: {runs}");
    person.said(&["setup", "--undo", "--yes"], 0);
}

/// Starts one broker after the other on the socket that it got, as systemd does.
const SUPERVISOR: &str = r#"
while [ ! -e "$HOME/run/end" ]; do
    sh -c 'echo $$ >"$HOME/run/pid.new"; mv "$HOME/run/pid.new" "$HOME/run/pid"; export LISTEN_PID=$$; exec "$0" serve --config "$HOME/.config/credbroker/config.yaml" 2>>"$HOME/run/log"' "$0"
done
"#;

/// Ends the broker, and returns when the next one is ready, as the type of the unit asks for.
const SYSTEMCTL: &str = r#"
[ "$2" = restart ] || exit 0
old=$(cat "$HOME/run/pid")
kill "$old"
while [ "$(cat "$HOME/run/pid")" = "$old" ]; do sleep 0.01; done
until "$HOME/bin/credbroker" healthcheck; do :; done
"#;

#[test]
fn a_restart_by_systemd_under_load_fails_no_client_and_runs_no_plugin_beside_the_broker() {
    let Some(person) = Person::new() else { return };
    person.script("tools/systemctl", SYSTEMCTL);
    person.said(&["setup", "--yes"], 0);
    fs::create_dir(person.path("run/credbroker")).unwrap();
    person.give("run/credbroker", 0o700);
    let socket = person.path("run/credbroker/credbroker.sock");
    let mut systemd = person.command("/usr/bin/systemd-socket-activate");
    systemd.arg(format!("--listen={}", socket.display())).arg("--fdname=credbroker");
    systemd
        .args(["/bin/sh", "-c", SUPERVISOR])
        .arg(person.path("bin/credbroker"))
        .env("PATH", "/usr/bin:/bin");
    let Ok(systemd) = systemd.stderr(Stdio::null()).spawn() else {
        return println!("SKIPPED: this machine has no systemd-socket-activate");
    };
    let mut systemd = Killed(systemd);
    while !socket.exists() {
        yield_now();
    }
    assert_eq!(person.own_token(), "mine");
    let runs = restarts_under_load(&person);
    person.said(&["stop", "--socket", socket.to_str().unwrap()], 0);
    systemd.0.wait().unwrap();
    assert!(runs.matches("direct").count() <= 1, "{runs}\n{}", person.read("run/log"));
}

#[test]
fn a_broker_that_was_stopped_is_gone_and_the_next_client_starts_another() {
    let Some(person) = Person::new() else { return };
    assert!(person.said(&["stop"], 0).contains("No broker runs on"));
    assert!(person.said(&["restart"], 1).contains("`credbroker setup` did not record how it is started"));
    person.said(&["setup", "--yes", "--no-systemd"], 0);
    assert_eq!(person.own_token(), "mine");
    assert_eq!(person.said(&["stop"], 0), "Stopped.\n");
    assert!(!person.path("run/credbroker/credbroker.sock").exists());
    assert_eq!(person.own_token(), "mine");
    // Without a broker, one is started.
    person.said(&["stop"], 0);
    assert_eq!(person.said(&["restart"], 0), "Restarted.\n");
    person.said(&["status"], 0);
    person.said(&["setup", "--undo", "--yes"], 0);
    assert!(person.said(&["stop"], 0).contains("No broker runs on"));
}

#[test]
fn where_systemd_runs_the_broker_it_stops_and_restarts_it() {
    let Some(person) = Person::new() else { return };
    let person = person.with_systemd();
    person.said(&["stop"], 0);
    person.said(&["restart"], 0);
    let asked = person.read("tools/log");
    for command in ["stop", "restart"] {
        assert!(asked.contains(&format!("--user {command} credbroker.service\n")), "{asked}");
    }
    // A broker on another socket is not that of systemd.
    assert!(person.said(&["stop", "--socket", "/absent/socket"], 0).contains("No broker runs on"));
    person.script("tools/systemctl", "[ \"$2\" = is-active ] || { echo no bus >&2; exit 1; }");
    assert!(person.said(&["stop"], 1).contains("`systemctl --user stop credbroker.service` failed: no bus"));
}
