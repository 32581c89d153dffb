//! What the demo needs: a private directory, and this binary as the plugin and as the callers that kubectl starts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use credbroker_config as config;
use credbroker_config::Config;
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;

/// The only provider.
pub(super) const PROVIDER: &str = "sample";

pub(super) struct Stage {
    program: PathBuf,
    directory: TempDir,
}

impl Stage {
    pub(super) fn new() -> anyhow::Result<Self> {
        // Independent of the umask, because the broker refuses a socket or a configuration that others could replace.
        let private = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix("credbroker-demo-").permissions(private).tempdir();
        let program = std::env::current_exe().context("cannot find the file of this program")?;
        Ok(Self { program, directory: directory.context("cannot make a private directory")? })
    }

    /// Where the broker listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("credbroker.sock")
    }

    /// A configuration with this binary as the plugin. A group may write to where it was built.
    pub(super) fn config(&self, environment: &Environment) -> anyhow::Result<Config> {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": self.program.to_string_lossy(),
            "args": ["sample-plugin", "--runs", self.runs_file().to_string_lossy()],
            "interactiveMode": "Never",
        });
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": [{"name": PROVIDER, "execConfig": exec, "sandbox": "compatible"}],
        });
        let file = self.directory.path().join("config.yaml");
        fs::write(&file, config.to_string())?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        Ok(config::load(Some(&file), environment)?.config)
    }

    /// The number of plugin runs so far.
    pub(super) fn runs(&self) -> usize {
        fs::read_to_string(self.runs_file()).map(|text| text.lines().count()).unwrap_or_default()
    }

    fn runs_file(&self) -> PathBuf {
        self.directory.path().join("runs")
    }

    /// Starts `count` shims at once, which must print the same token; returns the time until the last one ended.
    pub(super) async fn call(&self, count: usize) -> anyhow::Result<Duration> {
        let started = SystemClock.now().boot;
        let children = (0..count).map(|_| self.shim()).collect::<Result<Vec<_>, _>>();
        let children = children.context("cannot start a shim")?.into_iter().map(Child::wait_with_output);
        let outputs = try_join_all(children).await.context("cannot wait for a shim")?;
        let took = SystemClock.now().boot.saturating_sub(started);
        for Output { status, stderr, .. } in &outputs {
            ensure!(status.success(), "a shim failed: {}", String::from_utf8_lossy(stderr).trim());
        }
        let is_same = |pair: &[Output]| matches!(pair, [one, other] if token(one) == token(other));
        ensure!(outputs.windows(2).all(is_same), "two shims printed different credentials");
        Ok(took)
    }

    /// This binary as the exec plugin that kubectl starts. It is killed when its future is dropped.
    fn shim(&self) -> std::io::Result<Child> {
        #[expect(clippy::disallowed_methods, reason = "the demo starts this program itself, not a plugin")]
        let mut command = Command::new(&self.program);
        command.args(["shim", "--provider", PROVIDER, "--socket"]).arg(self.socket()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }
}

/// The token in the output of a shim.
fn token(shim: &Output) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(&shim.stdout).ok()?;
    document.pointer("/status/token")?.as_str().map(str::to_owned)
}
