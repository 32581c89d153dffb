//! The callers of the demo: this binary as the exec plugin that kubectl starts.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use futures_util::future::try_join_all;
use tokio::process::{Child, Command};

use credbroker_observe::clock::{Clock as _, SystemClock};

pub(super) struct Shims {
    program: PathBuf,
    socket: PathBuf,
}

impl Shims {
    /// Shims for a broker whose socket is in `directory`.
    pub(super) fn new(directory: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the file of this program")?;
        Ok(Self { program, socket: directory.join("credbroker.sock") })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts `count` shims at once, which must print the same token; returns the time until the last one ended.
    pub(super) async fn call(&self, provider: &'static str, count: usize) -> anyhow::Result<Duration> {
        let (program, socket) = (&self.program, &self.socket);
        let started = SystemClock.now().boot;
        let outputs = all(program, socket, provider, count).await?;
        let took = SystemClock.now().boot.saturating_sub(started);
        let mut outputs = outputs.into_iter().map(|output| {
            if !output.status.success() {
                bail!("a shim failed: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            Ok(output.stdout)
        });
        let first = outputs.next().context("no shim ran")??;
        for other in outputs {
            ensure!(token(&other?) == token(&first), "two shims printed different credentials");
        }
        Ok(took)
    }
}

/// The token in the output of a shim.
fn token(stdout: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(stdout).ok()?;
    document.pointer("/status/token")?.as_str().map(str::to_owned)
}

/// Runs `count` shims. They are killed when the future is dropped.
async fn all(program: &Path, socket: &Path, provider: &str, count: usize) -> anyhow::Result<Vec<Output>> {
    let start = |_| {
        #[expect(clippy::disallowed_methods, reason = "the demo starts this program itself, not a plugin")]
        let mut command = Command::new(program);
        command.args(["shim", "--provider", provider, "--socket"]).arg(socket).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let children = (0..count).map(start).collect::<Result<Vec<_>, _>>().context("cannot start a shim")?;
    try_join_all(children.into_iter().map(Child::wait_with_output)).await.context("cannot wait for a shim")
}
