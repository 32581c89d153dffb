//! Nothing waits for a reader of the log.

use std::{
    io::{PipeReader, Read as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use credbroker_client::{Client, Socket};
use credbroker_test_support::{FakePlugin, private_directory, private_file};
use serde_json::json;
use tempfile::TempDir;

use super::{AGES, until};
use crate::harness::{provider, reference};

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// A broker whose log is a pipe that the test may leave unread.
struct Logging {
    child: Child,
    log: PipeReader,
    directory: TempDir,
    _plugins: [FakePlugin; 2],
}

impl Logging {
    /// With a provider `good`, whose credential is fetched once, and `bad`, whose runs fail.
    fn start(level: &str) -> Self {
        let plugins = [
            FakePlugin::builder().token("t").expires_in(3600).build(),
            FakePlugin::builder().stderr("no login").exit_code(1).build(),
        ];
        let directory = private_directory();
        let config = directory.path().join("config.yaml");
        let providers = json!([provider("good", &plugins[0]), provider("bad", &plugins[1])]);
        let text =
            json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
        private_file(&config, &text.to_string());
        let (log, stderr) = std::io::pipe().unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg("--config").arg(&config).arg("--socket").arg(socket(directory.path()));
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).env("RUST_LOG", level);
        let child = command.stdin(Stdio::null()).stderr(stderr).spawn().unwrap();
        drop(command); // the last writer of the pipe is the broker
        until("it listens", || UnixStream::connect(socket(directory.path())).is_ok());
        Self { child, log, directory, _plugins: plugins }
    }

    fn socket(&self) -> Socket {
        Socket::at(socket(self.directory.path()))
    }

    /// Makes more log lines than a pipe takes: the level trace logs every frame.
    async fn talk(&self) {
        for _ in 0..40 {
            let client = Client::connect(&self.socket()).await.unwrap();
            for name in ["bad", "good"] {
                let wanted = reference(name, None, &[]);
                let asked = client.credential(&wanted);
                let answer = tokio::time::timeout(AGES, asked).await.expect("an answer, log or not");
                assert_eq!(answer.is_ok(), name == "good");
            }
        }
    }

    fn terminate(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let deadline = Instant::now() + AGES;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "SIGTERM ends it");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("run/credbroker.sock")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_read_stops_neither_answers_nor_the_end() {
    let mut broker = Logging::start("trace");
    broker.talk().await;
    assert_eq!(broker.terminate().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_read_again_says_how_many_lines_it_lacks() {
    let mut broker = Logging::start("trace");
    broker.talk().await;
    let mut log = broker.log.try_clone().unwrap();
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        text
    });
    broker.talk().await; // it flows again
    assert_eq!(broker.terminate().code(), Some(0));
    let text = read.join().unwrap();
    let lost = text.lines().find(|line| line.contains("log lines were dropped")).expect("the gap is named");
    assert!(lost.contains("ERROR") && lost.contains("lines="), "{lost}");
    assert!(text.lines().last().unwrap().contains("drained"), "the rest is written at the end");
    for line in text.lines() {
        assert!(line.starts_with("20"), "each line is whole: {line}");
    }
}
