//! gRPC's own clients of other languages, with their default channels: no option says which authority they send.
//!
//! `tests/interop/channels/setup.sh` prepares them. A client that the machine cannot prepare is skipped, and says so.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _, stderr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;

use crate::programs::{broker, clusterless, refresh};

/// For a line that has to come: a JVM starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn grpcio() {
    follows_two_rotations("python", |prepared| python(prepared, "python"));
}

/// The first releases that sent the percent-encoded path are of this age.
#[test]
fn grpcio_1_60() {
    follows_two_rotations("python-1.60", |prepared| python(prepared, "python-1.60"));
}

#[test]
fn grpc_java_by_target() {
    follows_two_rotations("java", |prepared| java(prepared, "Client"));
}

#[test]
fn grpc_java_by_domain_socket_address() {
    follows_two_rotations("java", |prepared| java(prepared, "ByAddress"));
}

#[test]
fn grpc_go() {
    follows_two_rotations("go", |prepared| (Command::new(prepared.join("go/client")), vec![]));
}

#[test]
fn grpc_js() {
    follows_two_rotations("node", |prepared| {
        let mut node = Command::new("node");
        node.arg(prepared.join("node/client.cjs"));
        (node, vec![root().join("proto/credbroker/v1/credbroker.proto")])
    });
}

#[test]
fn grpc_ruby() {
    follows_two_rotations("ruby", |prepared| {
        let mut ruby = Command::new("ruby");
        ruby.arg("-I").arg(prepared.join("ruby")).arg(root().join("tests/interop/channels/ruby/client.rb"));
        (ruby, vec![])
    });
}

/// What `docs/clients.md` says of messages that are printed. Once a language redacts them, the document can say so.
#[test]
fn a_printed_credential_shows_its_secrets_in_python_go_and_java() {
    type Program = fn(&Path) -> Command;
    let programs: [(&str, Program); 3] = [
        ("python", |prepared| {
            let mut python = Command::new(prepared.join("python/venv/bin/python"));
            python.arg(root().join("tests/interop/channels/python/printed.py"));
            python.env("PYTHONPATH", prepared.join("python/generated"));
            python
        }),
        ("go", |prepared| Command::new(prepared.join("go/print"))),
        ("java", |prepared| {
            let java_home = prepared.join("java").display().to_string();
            let mut java = Command::new("java");
            java.args(["-cp", &format!("{java_home}/classes:{java_home}/dependency/*"), "Printed"]);
            java
        }),
    ];
    let prepared = root().join("target/channels");
    for (name, program) in programs {
        if is_skipped(&prepared, name) {
            continue;
        }
        let output = program(&prepared).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((text.lines().count(), text.matches("c4n4ry").count()), (2, 4), "{name}: {text}");
    }
}

/// It has no code for the details of errors, and finds their types by reflection.
#[test]
fn grpcurl_prints_the_reason_of_an_error() {
    let prepared = root().join("target/channels");
    if is_skipped(&prepared, "grpcurl") {
        return;
    }
    let plugin = FakePlugin::builder().token("t").build();
    let broker = Broker::builder(broker()).providers(&json!([clusterless("corp", &plugin)])).start();
    let mut grpcurl = Command::new(prepared.join("grpcurl/grpcurl"));
    grpcurl.args(["-plaintext", "-d", r#"{"ref": {"provider": {"name": "not-configured"}}}"#]);
    grpcurl
        .arg(format!("unix://{}", broker.socket().display()))
        .arg("credbroker.v1.CredentialBroker/GetCredential");
    let output = grpcurl.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    for expected in ["google.rpc.ErrorInfo", "\"reason\"", "UNKNOWN_PROVIDER", "not-configured"] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}

/// A program, and what it is given after the socket and the provider.
type Client = (Command, Vec<PathBuf>);

/// Each client gets a credential, watches it through two rotations, reads an error's reason, and reports a rejection.
fn follows_two_rotations(name: &str, client: impl FnOnce(&Path) -> Client) {
    let prepared = root().join("target/channels");
    if is_skipped(&prepared, name) {
        return;
    }
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let broker = Broker::builder(broker()).providers(&json!([clusterless("corp", &plugin)])).start();
    let running = Running::start(client(&prepared), &broker.socket());

    let got = running.generation("get");
    let mut generations = vec![running.generation("watch")];
    assert_eq!(generations, [got], "the watch begins with what is held");
    for _ in 0..2 {
        refresh(&broker.socket(), "corp");
        generations.push(running.generation("watch"));
    }
    let error = running.line().to_uppercase().replace('_', "");
    assert_eq!(error, "ERROR CODE=NOTFOUND REASON=UNKNOWNPROVIDER");
    let message = running.line();
    assert!(message.starts_with("message ") && message.ends_with(" (UNKNOWN_PROVIDER)"), "{message}");
    let reported = running.generation("report");
    assert_eq!(running.line(), "outcome=OUTCOME_ALREADY_REPLACED");
    assert_eq!(
        generations.last(),
        Some(&reported),
        "what was reported is the first, which is replaced already"
    );
    running.ends_well();

    assert_eq!(plugin.runs(), 3);
    generations.sort();
    generations.dedup();
    assert_eq!(generations.len(), 3, "each is another one: {generations:?}");
}

/// Whether the machine lacks what the client needs.
fn is_skipped(prepared: &Path, name: &str) -> bool {
    if let Ok(why) = fs::read_to_string(prepared.join(format!("{name}.skipped"))) {
        // The harness captures what is printed, and shows nothing of tests that pass.
        stderr().write_all(format!("\n{why}").as_bytes()).unwrap();
        return true;
    }
    assert!(
        prepared.join(format!("{name}.ready")).is_file(),
        "{name} is not prepared; run tests/interop/channels/setup.sh and read what it says"
    );
    false
}

fn python(prepared: &Path, name: &str) -> Client {
    let mut python = Command::new(prepared.join(name).join("venv/bin/python"));
    python
        .arg(root().join("tests/interop/channels/python/client.py"))
        .env("PYTHONPATH", prepared.join(name).join("generated"));
    (python, vec![])
}

fn java(prepared: &Path, class: &str) -> Client {
    let mut java = Command::new("java");
    let java_home = prepared.join("java");
    java.arg("-cp").arg(format!("{0}/classes:{0}/dependency/*", java_home.display())).arg(class);
    (java, vec![])
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A client under way; killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start((mut command, more): Client, socket: &Path) -> Self {
        let mut child = command
            .arg(socket)
            .arg("corp")
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdout, (sender, lines)) = (child.stdout.take().unwrap(), channel());
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn line(&self) -> String {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line in time; what failed is on stderr");
        assert!(!line.contains("token-"), "a secret is printed: {line}");
        line
    }

    /// Of the next line, which says `what`.
    fn generation(&self, what: &str) -> String {
        let line = self.line();
        let rest = line.strip_prefix(&format!("{what} generation=")).unwrap_or_else(|| panic!("{line}"));
        rest.strip_suffix(" token=yes").unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    fn ends_well(mut self) {
        assert!(self.lines.recv_timeout(PATIENCE).is_err(), "nothing more is said");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
