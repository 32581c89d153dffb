//! Brokers that start late, are silent, or do not run.

use std::{
    fs,
    io::{self, Write},
    os::unix::{fs::DirBuilderExt, net::UnixListener},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
    time::SystemTime,
};

use credbroker_exec::{Edges, run};
use credbroker_proto::{Reason, v1::Credential};

use crate::{
    broker::{Answer, Broker},
    failures::status,
    shim::{asking, complaint, document, printed},
};

#[test]
fn a_broker_that_starts_late_is_waited_for() {
    let mut broker = Broker::absent();
    let child = asking(&broker).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    broker.start(Answer::Say(Ok(Credential { token: Some("late".into()), ..Credential::default() })));
    assert_eq!(printed(&child.wait_with_output().unwrap())["status"]["token"], "late");
}

#[test]
fn a_broker_that_restarts_is_waited_for() {
    let mut broker = Broker::absent();
    let leaving = UnixListener::bind(broker.socket()).unwrap();
    let child = asking(&broker).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (connection, _) = leaving.accept().unwrap();
    drop((connection, leaving)); // now connections are closed, then refused
    fs::remove_file(broker.socket()).unwrap(); // and now the socket is gone
    broker.start(Answer::Say(Ok(Credential { token: Some("new".into()), ..Credential::default() })));
    assert_eq!(printed(&child.wait_with_output().unwrap())["status"]["token"], "new");
}

#[test]
fn without_a_broker_the_error_names_the_socket_and_how_to_start_one() {
    let broker = Broker::absent();
    let line = complaint(&mut asking(&broker), 69);
    assert!(line.contains(&broker.socket().display().to_string()), "{line}");
    assert!(line.contains("credbroker serve") && line.contains("credbroker setup"), "{line}");
}

#[test]
fn without_a_broker_within_the_timeout_the_error_is_a_missing_broker() {
    let broker = Broker::absent();
    let line = complaint(asking(&broker).args(["--timeout", "0.3s"]), 69);
    assert!(line.contains("no broker answers on") && line.contains("No such file or directory"), "{line}");
}

#[test]
fn a_listener_that_hangs_up_counts_as_a_missing_broker() {
    let broker = Broker::absent();
    let listener = UnixListener::bind(broker.socket()).unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let line = complaint(&mut asking(&broker), 69);
    assert!(line.contains("connection was lost"), "{line}");
}

#[test]
fn a_broker_that_never_answers_is_a_timeout() {
    let broker = Broker::answering(Answer::Never);
    let line = complaint(asking(&broker).args(["--timeout", "0.2s"]), 75);
    assert!(line.contains("no answer within 200ms") && line.contains("--timeout"), "{line}");
}

#[test]
fn the_shim_sends_its_deadline() {
    let broker = Broker::with_token("t");
    for (args, most) in [(&[][..], 44_500), (&["--timeout", "600s"], 599_500), (&["--timeout", "2s"], 1_800)]
    {
        document(asking(&broker).args(args));
        let timeout = broker.timeouts().pop().unwrap();
        let millis: u32 = timeout.strip_suffix('m').unwrap().parse().unwrap();
        assert!((1..=most).contains(&millis), "{args:?}: {timeout}");
    }
}

/// A program that hangs, or another program than a broker.
#[test]
fn a_listener_that_sends_nothing_counts_as_a_missing_broker_after_five_seconds() {
    let broker = Broker::absent();
    let listener = UnixListener::bind(broker.socket()).unwrap();
    let accepted = thread::spawn(move || listener.accept().unwrap());
    let line = complaint(&mut asking(&broker), 69);
    assert!(
        line.contains("accepted the connection and sent nothing for 5 s; run `credbroker restart`"),
        "{line}"
    );
    accepted.join().unwrap();
}

#[test]
fn a_broker_that_has_sent_anything_has_the_whole_timeout() {
    let broker = Broker::absent();
    let listener = UnixListener::bind(broker.socket()).unwrap();
    let accepted = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap(); // SETTINGS
        stream
    });
    let line = complaint(asking(&broker).args(["--timeout", "6s"]), 75);
    assert!(line.contains("no answer within 6s"), "{line}");
    accepted.join().unwrap();
}

/// Runs the shim in this process, for a user at a terminal who is not root.
fn run_at_a_terminal(args: &[&str], environment: &[(&str, &Path)]) -> (u8, String, String) {
    let (stdout, stderr) = (Shared::default(), Shared::default());
    let mut edges = Edges {
        parent: |_| None,
        parent_environment: || None,
        environment: environment.iter().map(|(name, path)| (name.into(), path.into())).collect(),
        clock: SystemTime::now,
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(stderr.clone()),
        terminal: true,
        is_root: || false,
    };
    let code = run(args.iter().map(Into::into), &mut edges);
    (code, stdout.text(), stderr.text())
}

#[test]
fn the_users_own_broker_is_found_below_the_runtime_directory() {
    let runtime = credbroker_test_support::private_directory();
    let broker = Broker::with_token("t0ken");
    let directory = runtime.path().join("credbroker");
    fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
    fs::rename(broker.socket(), directory.join("credbroker.sock")).unwrap();
    let (code, stdout, stderr) = run_at_a_terminal(&["--provider=p"], &[("XDG_RUNTIME_DIR", runtime.path())]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("t0ken"), "{stdout}");
}

/// Here the shim may start the broker itself, so it does not wait for one before it knows that none runs.
#[test]
fn a_broker_that_drains_is_waited_out_where_the_shim_may_start_one() {
    let runtime = credbroker_test_support::private_directory();
    let directory = runtime.path().join("credbroker");
    fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
    let socket = directory.join("credbroker.sock");
    let (leaving, next) = (Broker::failing(status(Reason::Draining, "it ends")), Broker::with_token("next"));
    fs::rename(leaving.socket(), &socket).unwrap();
    let replaced = thread::spawn(move || {
        while leaving.requests().is_empty() {
            thread::yield_now();
        }
        fs::rename(next.socket(), socket).unwrap();
        next
    });
    let environment = [("XDG_RUNTIME_DIR", runtime.path()), ("HOME", runtime.path())];
    let (code, stdout, stderr) = run_at_a_terminal(&["--provider=p"], &environment);
    assert!(code == 0 && stdout.contains("next"), "{code} {stdout} {stderr}");
    drop(replaced.join().unwrap());
}

/// A request may wait for something else than a run, such as a verification.
#[test]
fn a_credential_that_needed_no_run_is_that_of_the_request_and_not_of_the_attending() {
    let broker = Broker::answering(Answer::Attended("of-the-request", "of-the-attending"));
    let environment = [("CREDBROKER_SOCKET", &*broker.socket())];
    let (code, stdout, _) = run_at_a_terminal(&["--provider=p"], &environment);
    assert!(code == 0 && stdout.contains("of-the-request"), "{stdout}");
}

#[test]
fn a_terminal_shows_what_the_shim_waits_for_and_the_line_is_erased() {
    let broker = Broker::answering(Answer::Never);
    let args = ["--provider", "gke", "--timeout", "1.2s"];
    let (code, stdout, stderr) = run_at_a_terminal(&args, &[("CREDBROKER_SOCKET", &broker.socket())]);
    assert_eq!(code, 75);
    assert_eq!(stdout, "");
    let (waiting, complaint) = stderr.split_once("\r\x1b[K").unwrap();
    assert_eq!(waiting, "credbroker-exec: waiting for provider gke ...");
    assert!(complaint.starts_with("credbroker-exec: provider gke: no answer"), "{complaint}");
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
