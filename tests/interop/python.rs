//! `examples/python/watch.py`: a watch by another language's gRPC, with code generated from `proto/` as anybody would.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use credbroker_test_support::{Broker, FakePlugin};
use serde_json::json;
use tempfile::TempDir;

use crate::programs::{broker, clusterless};

/// For a line that has to come.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_python_example_shows_each_rotation_and_outlives_a_restart_of_the_broker() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let providers = json!([clusterless("corp", &plugin)]);
    let first = Broker::builder(broker()).providers(&providers).start();
    let example = Example::generate();
    let socket = example.directory.path().join("broker.sock");
    symlink(first.socket(), &socket).unwrap();
    let watch = example.watch("corp", &socket);

    let mut generations = vec![watch.generation()];
    for _ in 0..2 {
        refresh(&first.socket(), "corp");
        generations.push(watch.generation());
    }
    assert_eq!(plugin.runs(), 3);

    // It ends with UNAVAILABLE when the first drains, and comes back when there is a broker again.
    first.stop();
    fs::remove_file(&socket).unwrap();
    let second = Broker::builder(broker()).providers(&providers).start();
    symlink(second.socket(), &socket).unwrap();
    generations.push(watch.generation());
    assert_eq!(plugin.runs(), 4);

    let count = generations.len();
    generations.sort();
    generations.dedup();
    assert_eq!(generations.len(), count, "each is another one: {generations:?}");
}

pub(crate) fn refresh(socket: &Path, provider: &str) {
    let mut command = Command::new(broker());
    let output = command.args(["refresh", provider, "--socket"]).arg(socket).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The example and the code it was given.
struct Example {
    directory: TempDir,
}

impl Example {
    fn generate() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new(python())
            .args(["-m", "grpc_tools.protoc", "-I", "proto"])
            .arg(format!("--python_out={}", directory.path().display()))
            .arg(format!("--grpc_python_out={}", directory.path().display()))
            .arg("proto/credbroker/v1/credbroker.proto")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { directory }
    }

    fn watch(&self, provider: &str, socket: &Path) -> Watch {
        let mut child = Command::new(python())
            .arg("examples/python/watch.py")
            .args(["--provider", provider, "--socket"])
            .arg(socket)
            .env("PYTHONPATH", self.directory.path())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, (sender, lines)) = (child.stdout.take().unwrap(), channel());
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Watch { child, lines }
    }
}

/// The running example; killed when dropped.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    /// Of the next line.
    fn generation(&self) -> String {
        let line = self.lines.recv_timeout(PATIENCE).expect("a generation in time");
        assert!(!line.contains("token-"), "a secret is printed: {line}");
        let (generation, rest) = line.split_once(' ').unwrap();
        assert!(rest.starts_with("holds=token expires=2"), "{line}");
        generation.strip_prefix("generation=").unwrap().to_owned()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The Python that has what `examples/python/requirements.txt` names: `PYTHON`, else that of `target/python-venv`.
fn python() -> PathBuf {
    let python = std::env::var_os("PYTHON").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python-venv/bin/python"),
        PathBuf::from,
    );
    assert!(
        python.is_absolute() && python.is_file(),
        "no Python at {} (an absolute path is needed); make one as examples/python/README.md says, or name one with \
         grpcio and grpcio-tools in the variable PYTHON",
        python.display()
    );
    python
}
