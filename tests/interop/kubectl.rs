//! The `kubectl` of this machine, in any version: 1.20 knows only v1beta1 stanzas, 1.22 and newer v1 too.

mod environment;
mod failures;
pub(crate) mod proxy;
mod sharing;
mod terminal;
mod wrap;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// `kubectl` with a separate home: it sees no cache, configuration or variable of this machine.
pub(crate) struct Kubectl {
    home: TempDir,
    env: Vec<(String, String)>,
}

impl Kubectl {
    pub(crate) fn new() -> Self {
        let home = tempfile::Builder::new().prefix("kubectl-").tempdir().unwrap();
        Self { home, env: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().to_str().unwrap().to_owned()));
        self
    }

    /// A private place for files of the test.
    pub(crate) fn dir(&self) -> &Path {
        self.home.path()
    }

    /// In its home directory, with `kubeconfig` and nothing of the caller's environment but `PATH`.
    pub(crate) fn command(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(args).current_dir(self.dir()).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.dir()).env("KUBECONFIG", kubeconfig);
        for name in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, self.dir().join(name));
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run(&self, kubeconfig: &Path, args: &[&str]) -> Output {
        self.command(kubeconfig, args).output().expect(NO_KUBECTL)
    }

    pub(crate) fn run_with_stdin(&self, kubeconfig: &Path, args: &[&str], stdin: &str) -> Output {
        let mut command = self.command(kubeconfig, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect(NO_KUBECTL);
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

pub(crate) const NO_KUBECTL: &str =
    "these tests need kubectl on PATH; Debian has it in the package kubernetes-client";

/// What kubectl printed, of a command that has to succeed.
#[track_caller]
pub(crate) fn stdout(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl failed ({}): {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What kubectl complained about, of a command that has to fail.
#[track_caller]
pub(crate) fn failure(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "kubectl should have failed, but printed: {stdout}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The newest stanza version that this kubectl reads.
pub(crate) fn newest_api_version() -> &'static str {
    if minor_version() >= 22 { V1 } else { V1BETA1 }
}

fn api_versions() -> &'static [&'static str] {
    if minor_version() >= 22 { &[V1, V1BETA1] } else { &[V1BETA1] }
}

pub(crate) fn minor_version() -> u32 {
    let kubectl = Kubectl::new();
    let version = stdout(&kubectl.run(Path::new("/dev/null"), &["version", "--client", "-o", "json"]));
    let version: Value = serde_json::from_str(&version).unwrap();
    let minor = version["clientVersion"]["minor"].as_str().unwrap();
    // Vendors append a `+`.
    minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}
