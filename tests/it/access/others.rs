//! Peers of other users, groups and PID namespaces, with the real binary. Only root can start them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

use credbroker_test_support::{Broker, BrokerBuilder};

use super::*;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");
const USER: u32 = 61_001;
const GROUP: u32 = 61_005;

/// Whether this machine can run these tests.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn can_run(tools: &[&str]) -> bool {
    let has = |tool: &&str| {
        Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let can = geteuid().is_root() && tools.iter().all(has);
    if !can {
        println!("SKIPPED: needs root and {tools:?}");
    }
    can
}

/// A broker of `a`, `b` and `c` that everyone can connect to.
fn open(program: &std::path::Path, rules: &Value) -> (Broker, FakePlugin) {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    (open_for(program, rules, &plugin), plugin)
}

fn open_for(program: &std::path::Path, rules: &Value, plugin: &FakePlugin) -> Broker {
    let providers: Vec<_> = ["a", "b", "c"].into_iter().map(|name| provider(name, plugin)).collect();
    open_with(program, rules, &providers.into())
}

fn open_with(program: &std::path::Path, rules: &Value, providers: &Value) -> Broker {
    let config = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "listen": {"mode": "0666"}, "providers": providers, "access": rules,
    });
    let builder: BrokerBuilder = Broker::builder(program).config(&config.to_string());
    let broker = builder.start();
    let run = broker.socket().parent().unwrap().to_owned();
    for directory in [run.parent().unwrap(), &run] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).unwrap();
    }
    broker
}

/// Gets `provider` with `prefix` before the client.
fn get(broker: &Broker, prefix: &[&str], provider: &str) -> Output {
    let client = [PROGRAM, "get", provider, "-o", "token", "--socket"];
    let words: Vec<_> = prefix.iter().chain(&client).copied().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(broker.socket()).env_remove("CREDBROKER_SOCKET").output().unwrap()
}

#[track_caller]
fn assert_gets(broker: &Broker, prefix: &[&str], expected: &[&str]) {
    for provider in ["a", "b", "c"] {
        let output = get(broker, prefix, provider);
        let code = if expected.contains(&provider) { 0 } else { 77 };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{prefix:?} {provider}: {stderr}\n{}", broker.log());
    }
}

fn rules() -> Value {
    let rule = |name: &str, peers: Value, provider: &str| json!({"name": name, "peers": peers, "allow": {"providers": [provider], "verbs": ["get"]}});
    let client = fs::canonicalize(PROGRAM).unwrap();
    json!([
        rule("user", json!({"uids": [USER]}), "a"),
        rule("group", json!({"gids": [GROUP]}), "b"),
        rule("program", json!({"executables": [client], "uids": [0, USER + 2]}), "c"),
        rule("overflow", json!({"uids": [65_534]}), "a"),
    ])
}

const AS_USER: [&str; 4] = ["setpriv", "--reuid=61001", "--regid=61001", "--clear-groups"];
const IN_GROUP: [&str; 4] = ["setpriv", "--reuid=61002", "--regid=61002", "--groups=61004,61005"];
const OF_GROUP: [&str; 4] = ["setpriv", "--reuid=61002", "--regid=61005", "--clear-groups"];
const BY_PROGRAM: [&str; 4] = ["setpriv", "--reuid=61003", "--regid=61003", "--clear-groups"];
const OVERFLOW: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn users_groups_and_programs_get_what_their_rules_allow() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let (broker, _plugin) = open(PROGRAM.as_ref(), &rules());
    assert_gets(&broker, &AS_USER, &["a"]);
    assert_gets(&broker, &IN_GROUP, &["b"]);
    assert_gets(&broker, &OF_GROUP, &["b"]);
    assert_gets(&broker, &BY_PROGRAM, &["c"]);
    // Root is the broker's own user here, and has a rule for one program only.
    assert_gets(&broker, &["env"], &["c"]);
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    let is_whole = map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"];
    assert_gets(&broker, &OVERFLOW, if is_whole { &["a"] } else { &[] });
}

#[test]
fn without_rules_only_the_own_user_and_root_are_served() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let (broker, _plugin) = open(PROGRAM.as_ref(), &json!([]));
    assert_gets(&broker, &["env"], &["a", "b", "c"]);
    assert_gets(&broker, &AS_USER, &[]);
}

/// The values of a caller's variables are shown to the broker's own user only, and no other can guess them.
#[test]
fn accounts_are_shown_to_the_own_user_only() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let allow = json!({"providers": ["a"], "verbs": ["get", "list"]});
    let rules = json!([{"name": "all", "peers": {"uids": [0, USER]}, "allow": allow}]);
    let mut taking = provider("a", &plugin);
    taking["callerEnv"] = json!(["AWS_PROFILE"]);
    let broker = open_with(PROGRAM.as_ref(), &rules, &json!([taking]));
    let shown = |prefix: &[&str], arguments: &[&str]| -> Value {
        let mut command = Command::new(prefix[0]);
        command.args(&prefix[1..]).arg(PROGRAM).args(arguments).args(["-o", "json", "--socket"]);
        let output = command.arg(broker.socket()).env("AWS_PROFILE", "prod").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    shown(&AS_USER, &["get", "a"]);
    for (prefix, account, is_of_caller) in
        [(&["env"][..], json!({"AWS_PROFILE": "prod"}), true), (&AS_USER, json!({}), false)]
    {
        let held = &shown(prefix, &["status"])["credentials"][0];
        assert_eq!((&held["account"], &held["isOfCaller"]), (&account, &json!(is_of_caller)), "{prefix:?}");
        assert_eq!(held["callerEnv"], json!(["AWS_PROFILE"]));
    }
}

/// As between two containers of a pod.
#[test]
fn of_a_peer_in_another_pid_namespace_only_uid_and_gid_count() {
    if !can_run(&["setpriv", "unshare"]) {
        return;
    }
    let inside = FakePlugin::script(&format!(
        "unshare --pid --fork --mount-proc --kill-child {PROGRAM} \"$@\" & trap \"kill -KILL $!\" TERM; wait"
    ));
    let (broker, _plugin) = open(&inside.path(), &rules());
    assert_gets(&broker, &AS_USER, &["a"]);
    assert_gets(&broker, &OF_GROUP, &["b"]);
    assert_gets(&broker, &IN_GROUP, &[]);
    assert_gets(&broker, &BY_PROGRAM, &[]);
}

/// It may have what the rules give to its new user, but not while it provides that.
#[test]
fn a_plugin_that_changes_its_user_cannot_wait_for_itself() {
    if !can_run(&["setpriv", "setsid"]) {
        return;
    }
    let asks = format!("{} env -i {PROGRAM} get a --socket \"$(cat $dir/socket)\"", AS_USER.join(" "));
    for line in [
        format!("{asks} > $dir/said 2>&1"),
        format!("setsid --wait {asks} > $dir/said 2>&1"),
        format!(
            "(setsid sh -c '{asks} > $dir/said 2>&1; : > $dir/done' &)
            while [ ! -e $dir/done ]; do sleep 0.01; done"
        ),
    ] {
        let plugin = FakePlugin::script(&format!("export dir\n{line}\nexit 1"));
        let broker = open_for(PROGRAM.as_ref(), &rules(), &plugin);
        fs::write(plugin.dir().join("socket"), broker.socket().to_str().unwrap()).unwrap();
        let answer = get(&broker, &AS_USER, "a");
        let (error, said) =
            (String::from_utf8_lossy(&answer.stderr), fs::read_to_string(plugin.dir().join("said")).unwrap());
        assert!(!answer.status.success() && error.contains("RECURSION"), "{line}: {error}");
        assert!(said.contains("RECURSION"), "{line}: {said}");
        assert_eq!(plugin.runs(), 1);
    }
}
