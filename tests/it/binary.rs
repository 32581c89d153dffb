//! The real binary.

use std::{
    collections::HashSet,
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use credbroker_test_support::{Broker, FakePlugin, Kubeconfig, private_directory, private_file};
use serde_json::{Value, json};

use crate::{harness::provider, outside::children};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

fn shim(socket: &Path) -> Child {
    Command::new(PROGRAM)
        .args(["shim", "--provider", "cloud", "--socket"])
        .arg(socket)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn two_hundred_shims_on_an_empty_cache_are_one_run() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).sleep(0.3).build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let shims: Vec<_> = (0..200).map(|_| shim(&broker.socket())).collect();
    let outputs: Vec<Output> = shims.into_iter().map(|shim| shim.wait_with_output().unwrap()).collect();
    let tokens: HashSet<_> = outputs
        .iter()
        .map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            document["status"]["token"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(tokens, HashSet::from(["token-1".to_owned()]));
    assert_eq!(plugin.runs(), 1);
}

#[test]
fn sigterm_ends_it_with_exit_code_0_and_says_so() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("SIGTERM received") && log.contains("drained"), "{log}");
}

/// Like `credbroker serve` in a shell: the broker has the terminal, and a plugin is a background process of it.
#[test]
fn a_plugin_that_reads_from_the_brokers_terminal_is_ended_and_says_so() {
    let plugin = FakePlugin::script("read -r code < /dev/tty; echo \"$code\"");
    let in_terminal = FakePlugin::script(&format!("exec script -qefc \"{PROGRAM} $*\" /dev/null"));
    let broker = Broker::builder(in_terminal.path()).providers(&json!([provider("cloud", &plugin)])).start();
    let output = shim(&broker.socket()).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("needs a login") && stderr.contains("run `credbroker login cloud`"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
    // `script` would leave the broker behind.
    let mut inner = broker.pid();
    while let [child] = children(inner)[..] {
        inner = child;
    }
    assert_ne!(inner, broker.pid());
    let pid = rustix::process::Pid::from_raw(inner.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until(|| !Path::new(&format!("/proc/{inner}")).exists());
}

/// As in `credbroker clusters | head`.
#[test]
fn a_reader_that_has_seen_enough_hears_no_complaint() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(PROGRAM);
    command.args(["status", "--socket"]).arg(broker.socket()).stdout(writer).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    // A peer that shakes hands and then answers no ping holds a drain up until its deadline.
    let mut mute = UnixStream::connect(broker.socket()).unwrap();
    mute.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    mute.read_exact(&mut [0; 9]).unwrap(); // the broker's SETTINGS: the handshake is done
    let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap();
    let signal = || rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    signal();
    until(|| broker.log().contains("SIGTERM received"));
    signal();
    until(|| broker.log().contains("stopping immediately"));
    let (status, log) = broker.stop();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(!log.contains("grace period"), "{log}");
}

#[test]
fn it_does_not_start_where_it_must_not() {
    let plugin = FakePlugin::builder().token("t").build();
    let providers = json!([provider("cloud", &plugin)]);
    let first = Broker::builder(PROGRAM).providers(&providers).start();
    let directory = private_directory();
    let config = directory.path().join("config.yaml");
    let text =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
    private_file(&config, &text.to_string());
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let serve = |socket: &Path, config: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--socket"]).arg(socket).arg("--config").arg(config);
        command.env_clear().output().unwrap()
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let second = serve(&first.socket(), &config);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second).contains("already running"), "{}", text(&second));
    let by_variable = Command::new(PROGRAM)
        .args(["serve", "--config"])
        .arg(&config)
        .env_clear()
        .env("CREDBROKER_SOCKET", first.socket())
        .output()
        .unwrap();
    let expected = "credbroker: CREDBROKER_SOCKET names the socket: a broker is already running on ";
    assert!(text(&by_variable).contains(expected), "{}", text(&by_variable));
    let foreign = serve(&file, &config);
    assert_eq!(foreign.status.code(), Some(1));
    assert!(text(&foreign).contains("is not a socket"), "{}", text(&foreign));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let nothing = serve(&file, &directory.path().join("none"));
    assert_eq!(nothing.status.code(), Some(78), "{}", text(&nothing));
    let wrong = serve(Path::new("unix://relative"), &config);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    let listen =
        r#"{"apiVersion":"credbroker.io/v1alpha1","kind":"BrokerConfig","listen":{"group":"no such"},"#;
    private_file(&config, &format!("{listen}\"providers\":{providers}}}"));
    let group = serve(&directory.path().join("socket"), &config);
    assert_eq!(group.status.code(), Some(78), "{}", text(&group));
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--config"]).arg(&config).env_clear().env("CREDBROKER_LOG", "typo");
    let level = command.output().unwrap();
    assert_eq!(level.status.code(), Some(78), "{}", text(&level));
    assert!(text(&level).contains("CREDBROKER_LOG: `typo` is not valid"), "{}", text(&level));
    assert!(shim(&first.socket()).wait_with_output().unwrap().status.success(), "the first still serves");
}

/// As in an image without `/tmp`.
#[test]
fn it_does_not_start_where_plugins_have_no_working_directory() {
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("socket"));
    let plugin = FakePlugin::builder().token("t").build();
    let text = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [provider("cloud", &plugin)]});
    private_file(&config, &text.to_string());
    let missing = directory.path().join("none");
    let mut command = Command::new("timeout");
    command.args(["60", PROGRAM, "serve", "--socket"]).arg(&socket).arg("--config").arg(&config);
    let output = command.env("TMPDIR", &missing).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let what = format!("cannot make working directories for plugins in {}: No such file", missing.display());
    assert!(stderr.contains(&what) && stderr.contains("mount a writable volume"), "{stderr}");
    assert!(!socket.exists(), "it never listened");
}

#[test]
fn a_group_can_connect_with_any_umask() {
    let plugin = FakePlugin::builder().token("t").build();
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("run/socket"));
    let text = json!({
        "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "listen": {"mode": "0660"},
        "providers": [provider("cloud", &plugin)],
    });
    private_file(&config, &text.to_string());
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\"", PROGRAM, "serve", "--config"]).arg(&config);
    let mut broker = command.arg("--socket").arg(&socket).env_clear().stderr(Stdio::null()).spawn().unwrap();
    until(|| UnixStream::connect(&socket).is_ok());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let modes = (mode(socket.parent().unwrap()), mode(&socket));
    broker.kill().unwrap();
    broker.wait().unwrap();
    assert_eq!(modes, (0o750, 0o660));
}

#[test]
fn json_logs_are_one_object_a_line_with_the_spans_of_request_and_run() {
    let plugin = FakePlugin::builder().exit_code(1).build();
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("run/socket"));
    let providers = json!([provider("cloud", &plugin)]);
    let text =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
    private_file(&config, &text.to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--log-format", "json", "--config"]).arg(&config).arg("--socket").arg(&socket);
    let mut broker =
        command.env_clear().env("CREDBROKER_LOG", "debug").stderr(Stdio::piped()).spawn().unwrap();
    until(|| UnixStream::connect(&socket).is_ok());
    let _ = shim(&socket).wait_with_output().unwrap();
    let pid = rustix::process::Pid::from_child(&broker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut log = String::new();
    broker.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    broker.wait().unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let span = |name: &str| lines.iter().any(|line| line["span"]["name"] == name);
    assert!(span("plugin_run") && span("request"), "{log}");
}

#[test]
fn it_keeps_serving_when_its_log_is_no_longer_read() {
    let plugin = FakePlugin::builder().exit_code(3).build();
    let directory = private_directory();
    let (config, socket) = (directory.path().join("config.yaml"), directory.path().join("run/socket"));
    let providers = json!([provider("cloud", &plugin)]);
    let text =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
    private_file(&config, &text.to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--config"]).arg(&config).arg("--socket").arg(&socket).env_clear();
    let mut broker = command.stderr(Stdio::piped()).spawn().unwrap();
    until(|| UnixStream::connect(&socket).is_ok());
    drop(broker.stderr.take());
    let answer = shim(&socket).wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&answer.stderr);
    assert!(complaint.contains("PLUGIN_EXIT"), "{complaint}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&broker), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(broker.wait().unwrap().code(), Some(0));
}

#[test]
fn a_group_reaches_the_socket_with_any_umask() {
    let plugin = FakePlugin::builder().token("t").build();
    let providers = json!([provider("cloud", &plugin)]);
    let config = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers,
        "listen": {"mode": "0660"}});
    let broker = Broker::builder(PROGRAM).config(&config.to_string()).start();
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&path.symlink_metadata().unwrap()) & 0o7777;
    assert_eq!((mode(&broker.socket()), mode(broker.socket().parent().unwrap())), (0o660, 0o750));
}

#[test]
fn logs_name_the_run_and_its_failure() {
    let plugin = FakePlugin::builder().token("t").exit_code(1).build();
    let broker = Broker::builder(PROGRAM).providers(&json!([provider("cloud", &plugin)])).start();
    let _ = shim(&broker.socket()).wait_with_output().unwrap();
    let (_, log) = broker.stop();
    assert!(
        log.contains("plugin_run") && log.contains("provider=cloud") && log.contains("exit code 1"),
        "{log}"
    );
    assert!(!log.contains('\x1b'), "no colors where there is no terminal");
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Such a file would run programs of another user as the broker.
#[test]
fn a_kubeconfig_that_another_user_can_change_does_not_start_a_broker() {
    const OTHER: u32 = 3101;
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can give files to other users");
    }
    let directory = private_directory();
    let kubeconfig = directory.path().join("home/kubeconfig");
    let home = kubeconfig.parent().unwrap();
    std::fs::create_dir(home).unwrap();
    let plugin = FakePlugin::builder().token("t").build();
    let text = Kubeconfig::new().exec_user("dev", &plugin.exec_stanza()).to_yaml();
    private_file(&kubeconfig, &text);
    let config = directory.path().join("config.yaml");
    let head =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "kubeconfigs": [kubeconfig]});
    private_file(&config, &head.to_string());
    // Owner of the directory and its mode, owner, group and mode of the file, and the problem.
    for (above, above_mode, owner, group, mode, problem) in [
        (0, 0o755, OTHER, OTHER, 0o600, format!("`chown 0 {}`", kubeconfig.display())),
        (OTHER, 0o755, OTHER, OTHER, 0o600, format!("home belongs to uid {OTHER}")),
        (0, 0o777, 0, 0, 0o600, format!("`chmod go-w {}`", home.display())),
        (0, 0o755, 0, OTHER, 0o664, format!("`chmod go-w {}`", kubeconfig.display())),
        (0, 0o755, 0, 0, 0o666, format!("`chmod go-w {}`", kubeconfig.display())),
    ] {
        let modes = [(home, above, above, above_mode), (&*kubeconfig, owner, group, mode)];
        for (path, owner, group, mode) in modes {
            std::os::unix::fs::chown(path, Some(owner), Some(group)).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        for command in ["validate", "serve"] {
            let mut program = Command::new(PROGRAM);
            program.args([command, "--config"]).arg(&config).env_clear().stdin(Stdio::null());
            let output = program.output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(78), "{said}");
            assert!(said.contains(&problem), "{problem}: {said}");
        }
    }
    assert_eq!(plugin.runs(), 0);
}
