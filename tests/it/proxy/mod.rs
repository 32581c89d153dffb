//! The proxy, with the real binary and real users. Only root can start them.

mod apart;
mod raw;
mod setting;
mod streams;

use std::{
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::Command,
};

use credbroker_test_support::{FakePlugin, private_file};
use serde_json::json;

use self::setting::{AS_OTHER, AS_USER, PODS, PROGRAM, Setting, can_run, text, until};

#[test]
fn a_user_with_the_verb_proxy_alone_uses_a_cluster_and_holds_no_credential() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::start();
    let target = setting.target();
    assert_eq!(setting.at_socket(&AS_USER, &format!("{target}{PODS}")), "200", "{}", setting.broker.log());
    assert_eq!(setting.at_socket(&AS_OTHER, &format!("{target}{PODS}")), "403");
    assert_eq!(
        setting.at_socket(&AS_USER, "/contexts/prod-0123456789ab/api"),
        "403",
        "unknown looks the same"
    );
    let socket = setting.broker.socket();
    for arguments in [&["get", "admin"][..], &["status"], &["clusters"]] {
        let words = [&AS_USER[..], &[PROGRAM], arguments, &["--socket", text(&socket)]].concat();
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(77), "{arguments:?} {stderr}");
        assert!(stderr.contains("PEER_DENIED"), "{stderr}");
    }
    let tokens = setting.server.seen_tokens();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == "c4n4ry-token"), "{tokens:?}");
    assert!(!setting.broker.log().contains("c4n4ry"));
}

#[test]
fn a_handle_works_for_its_user_and_is_of_no_use_when_it_is_stolen() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::start();
    let (target, base) = (setting.target(), Setting::url(|| setting.broker.log()));
    let token = setting.token(&target);
    let url = format!("{base}{target}{PODS}");
    assert_eq!(setting.at_port(&AS_USER, &url, &token, &[]), "200", "{}", setting.broker.log());
    assert_eq!(setting.at_port(&AS_USER, &url, &token, &["--http1.1"]), "200");
    let before = setting.server.requests().len();
    for (prefix, url, token, more, expected) in [
        (&AS_OTHER[..], &url, &*token, &[][..], "403"),
        (&["env"], &url, &token, &[], "403"),
        (&AS_USER, &url, "another", &[], "401"),
        (&AS_USER, &format!("{base}/contexts/prod-0123456789ab/api"), &token, &[], "401"),
        (&AS_USER, &url, &token, &["-H", "Host: evil.example"], "421"),
        (&AS_USER, &url, &token, &["-H", "Origin: https://evil.example"], "403"),
    ] {
        assert_eq!(setting.at_port(prefix, url, token, more), expected, "{prefix:?} {url} {more:?}");
    }
    assert_eq!(setting.server.requests().len(), before, "nothing was forwarded");
    let refused = setting.handle(&AS_OTHER, &target);
    assert_eq!(refused.status.code(), Some(77), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// kubectl drops the message of a 503, and tries for minutes: what its exec plugin prints is what a person sees.
#[test]
fn the_shim_says_why_there_is_no_credential() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let failing = FakePlugin::builder().stderr("log in again").exit_code(3);
    let (plugin, setting) = Setting::with_plugin_of(failing, &["--proxy"]);
    let target = setting.target();
    let refused = setting.handle(&AS_USER, &target);
    let line = String::from_utf8(refused.stderr).unwrap();
    assert!(line.contains("no credential for context prod") && line.contains("log in again"), "{line}");
    assert_eq!(refused.status.code(), Some(1), "{line}");
    assert_eq!(plugin.runs(), 1);
    plugin.becomes(&FakePlugin::builder().token("token-1").expires_in(3600));
    until(|| setting.handle(&AS_USER, &target).status.success().then_some(()));
}

#[test]
fn requests_and_refusals_are_in_the_audit_file_and_in_the_metrics() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::start();
    let (target, base) = (setting.target(), Setting::url(|| setting.broker.log()));
    let (token, url) = (setting.token(&target), format!("{base}{target}{PODS}"));
    assert_eq!(setting.at_port(&AS_USER, &url, &token, &[]), "200");
    assert_eq!(setting.at_port(&AS_USER, &url, "another", &[]), "401");
    assert_eq!(setting.at_port(&AS_USER, &url, &token, &["-H", "Host: evil.example"]), "421");
    assert_eq!(setting.at_socket(&AS_OTHER, &format!("{target}{PODS}")), "403");
    let expected = [(200, ""), (401, "Unauthorized"), (421, "MisdirectedRequest"), (403, "Forbidden")];
    let expected = expected.map(|(code, reason)| (code, reason.to_owned()));
    until(|| (setting.records("audit") == expected).then_some(()));
    let count = |code: u16, verb: &str| {
        let series = format!("credbroker_proxy_requests_total{{verb=\"{verb}\",code=\"{code}\"}}");
        setting.metric("metrics.sock", &series)
    };
    let counts = [count(200, "list"), count(401, "other"), count(421, "other"), count(403, "list")];
    assert_eq!(counts, [const { Some("1") }; 4].map(|one| one.map(str::to_owned)));

    // What one user makes is bounded.
    for _ in 0..200 {
        setting.at_socket(&AS_OTHER, &format!("{target}{PODS}"));
    }
    until(|| (count(403, "list")? == "201").then_some(()));
    let refused = setting.records("audit").len() - 3;
    assert!(refused < 201, "{refused} records of 201 refusals");
}

#[test]
fn clients_that_close_at_once_and_those_with_mapped_addresses() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::start();
    let (target, base) = (setting.target(), Setting::url(|| setting.broker.log()));
    let (token, url) = (setting.token(&target), format!("{base}{target}{PODS}"));
    let address = base.strip_prefix("https://").unwrap();
    for _ in 0..50 {
        drop(TcpStream::connect(address).unwrap());
    }
    let port = address.rsplit_once(':').unwrap().1;
    let mapped = format!("127.0.0.1:{port}:[::ffff:127.0.0.1]:{port}");
    for (prefix, expected) in [(&AS_USER, "200"), (&AS_OTHER, "403")] {
        assert_eq!(setting.at_port(prefix, &url, &token, &["--connect-to", &mapped]), expected);
    }
}

/// In a separate network, with a loopback interface: the port is not there, and the bridge is a way to the socket.
#[test]
fn a_sandbox_without_a_network_reaches_the_proxy_by_a_bridge_alone() {
    if !can_run(&["setpriv", "curl", "unshare", "ip"]) {
        return;
    }
    let setting = Setting::start();
    let (target, base) = (setting.target(), Setting::url(|| setting.broker.log()));
    let (token, authority, socket) = (setting.token(&target), setting.authority(), setting.socket());
    let as_user = AS_USER.join(" ");
    let kubeconfig = setting.directory.path().join("sandboxed");
    let script = format!(
        "ip link set lo up
        curl -sS -m 5 --cacert {authority} -H 'authorization: Bearer {token}' {base}{target}{PODS} && exit 1
        {as_user} {PROGRAM} bridge --listen 127.0.0.1:0 --socket {socket} > {kubeconfig} &
        bridge=$!
        while [ ! -s {kubeconfig} ]; do kill -0 $bridge || exit 2; done
        server=$(sed 's/.*\"server\":\"\\([^\"]*\\)\".*/\\1/' {kubeconfig})
        {as_user} curl -sS -m 20 -o /dev/null -w '%{{http_code}}' $server{PODS}
        kill $bridge",
        authority = text(&authority),
        socket = text(&socket),
        kubeconfig = text(&kubeconfig),
    );
    let output = Command::new("unshare").args(["--net", "sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200", "{stderr} {}", setting.broker.log());
    assert!(stderr.contains("curl: (7)"), "the port is not in that network: {stderr}");

    let bridge_as = |user: &[&'static str], more: &[&'static str]| {
        let fixed = [PROGRAM, "bridge", "--listen", "127.0.0.1:0", "--socket", text(&socket)];
        let words = [user, &fixed, more].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    let useless = bridge_as(&AS_OTHER, &["--host-network"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&useless.stderr);
    assert!(
        stderr.contains("the proxy has no target for uid 61002") && useless.stdout.is_empty(),
        "{stderr}"
    );
    let bridge = |more: &[&'static str]| bridge_as(&AS_USER, more);
    let refused = bridge(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(77), "{stderr}");
    assert!(stderr.contains("--host-network") && refused.stdout.is_empty(), "{stderr}");
    let mut allowed = bridge(&["--host-network"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(allowed.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.contains("\"server\":\"http://127.0.0.1:") && !line.contains("users"), "{line}");
    allowed.kill().unwrap();
    allowed.wait().unwrap();
}

#[test]
fn a_right_that_a_rule_takes_away_is_gone() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::start();
    let (target, base) = (setting.target(), Setting::url(|| setting.broker.log()));
    let (token, url) = (setting.token(&target), format!("{base}{target}{PODS}"));
    assert_eq!(setting.at_port(&AS_USER, &url, &token, &[]), "200");
    setting.allow(&["list"]);
    until(|| (setting.at_port(&AS_USER, &url, &token, &[]) == "403").then_some(()));
    assert_eq!(setting.at_socket(&AS_USER, &format!("{target}{PODS}")), "403");
    setting.allow(&["proxy"]);
    until(|| (setting.at_port(&AS_USER, &url, &token, &[]) == "200").then_some(()));
}

#[test]
fn streams_end_with_their_credential_and_with_the_right_of_their_caller() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let (_plugin, setting) = Setting::with_plugin(&["--proxy"]);
    streams::end_with_the_credential_and_with_the_right(&setting);
}

#[test]
fn a_port_that_systemd_passed_and_the_configuration_lacks_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.yaml");
    let plugin = FakePlugin::builder().token("t").build();
    let providers = [json!({"name": "corp", "execConfig": plugin.exec_stanza()})];
    let text = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers,
        "proxy": {"directory": directory.path().join("proxy"), "listen": {}}});
    private_file(&config, &text.to_string());
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    // A test chooses only the number of standard input, and the shell makes it the descriptor that systemd passes first.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"export LISTEN_PID=$$; exec "$0" proxy --config "$1" 3<&0"#, PROGRAM]);
    command.arg(&config).env("LISTEN_FDS", "1").stdin(OwnedFd::from(port));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("add `tls: {}` to `proxy`"), "{stderr}");
}
