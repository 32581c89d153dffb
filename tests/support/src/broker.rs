//! The real broker as a child process, on a private socket.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::{fs::PermissionsExt, net::UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{private_file, yaml};

/// Generous: a loaded machine may be slow, and a broker that exits is noticed immediately.
const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A running `credbroker serve`. It gets SIGTERM when this is dropped.
#[derive(Debug)]
pub struct Broker {
    command: Command,
    child: Child,
    dir: TempDir,
    log: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Broker {
    /// A broker of the executable `program`, which only the test target knows (`CARGO_BIN_EXE_credbroker`).
    pub fn builder(program: impl AsRef<Path>) -> BrokerBuilder {
        BrokerBuilder {
            program: program.as_ref().to_owned(),
            config: None,
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// The socket it listens on.
    pub fn socket(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends SIGTERM, waits, and returns how it exited and everything it logged.
    pub fn stop(mut self) -> (ExitStatus, String) {
        let status = self.end();
        (status, self.log())
    }

    /// Ends it with SIGTERM, calls `meanwhile`, and starts it again, with the same arguments and socket.
    pub fn restart(&mut self, meanwhile: impl FnOnce()) {
        self.end();
        meanwhile();
        (self.child, self.reader) = spawn(&mut self.command, &self.log);
        self.wait_until_ready();
    }

    fn end(&mut self) -> ExitStatus {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        if self.child.try_wait().expect("our own child").is_none() {
            kill_process(pid, Signal::TERM).expect("our own child takes signals");
        }
        let deadline = Instant::now() + STOP_LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().expect("our own child takes signals");
                self.child.wait().expect("our own child");
                panic!("the broker did not end within {STOP_LIMIT:?} of SIGTERM; its log:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.read_the_rest();
        status
    }

    /// Its stderr ends with it, unless a plugin still holds that open: then the log so far must be enough.
    fn read_the_rest(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !self.reader.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            drop(self.child.kill());
            drop(self.child.wait());
            println!("the broker's log:\n{log}");
        } else {
            self.end();
        }
    }
}

/// How a [`Broker`] is started: with its own environment, of which only `PATH` is the test's.
#[derive(Clone, Debug)]
pub struct BrokerBuilder {
    program: PathBuf,
    config: Option<String>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl BrokerBuilder {
    /// The text of its config file. Without one it serves the exec users of `KUBECONFIG`.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// A config of these `providers` alone: a list of `{"name": …, "execConfig": …}`.
    #[must_use]
    pub fn providers(self, providers: &Value) -> Self {
        let config =
            json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "providers": providers});
        self.config(&yaml::document(&config))
    }

    /// Adds an argument of `credbroker serve`.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Serves the exec users of this kubeconfig.
    #[must_use]
    pub fn kubeconfig(self, path: impl AsRef<Path>) -> Self {
        self.env("KUBECONFIG", path.as_ref())
    }

    /// Starts it and returns when its socket takes connections. Panics with its log if it ends before.
    pub fn start(self) -> Broker {
        let private = Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new()
            .prefix("broker-")
            .permissions(private)
            .tempdir()
            .expect("a temporary directory");
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--socket").arg(socket_in(dir.path())).args(&self.args);
        if let Some(text) = &self.config {
            let file = dir.path().join("config.yaml");
            private_file(&file, text);
            command.arg("--config").arg(file);
        }
        command.env_clear().env("HOME", dir.path()).envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(self.env).stdin(Stdio::null()).stderr(Stdio::piped());
        let log = Arc::default();
        let (child, reader) = spawn(&mut command, &log);
        let mut broker = Broker { command, child, dir, log, reader };
        broker.wait_until_ready();
        broker
    }
}

impl Broker {
    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.try_wait().expect("our own child");
            if let Some(status) = ended {
                self.read_the_rest();
                panic!("the broker ended ({status}) before it was ready:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "no broker within {START_LIMIT:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn spawn(command: &mut Command, log: &Arc<Mutex<String>>) -> (Child, JoinHandle<()>) {
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stderr, log) = (child.stderr.take().expect("a pipe"), Arc::clone(log));
    (child, std::thread::spawn(move || read_log(stderr, &log)))
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("run").join("broker.sock")
}

fn read_log(stderr: ChildStderr, log: &Mutex<String>) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&String::from_utf8_lossy(&line));
        log.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakePlugin;

    #[test]
    #[should_panic(expected = "no such provider")]
    fn a_broker_that_does_not_start_shows_its_log() {
        let program = FakePlugin::builder().stderr("no such provider").exit_code(78).build();
        Broker::builder(program.path()).start();
    }
}
