//! `credbroker demo`: a broker, a sample plugin and its callers, all in this binary.

mod sample;
mod shims;

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use credbroker_client::{Client, CredentialRef, Socket};

use super::{
    progress::{CommandSignals, Progress},
    screen::unfitted,
};
use crate::app::{self, Drained, Edges, Listening};
use credbroker_config as config;
use credbroker_config::Config;
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;
use credbroker_uds_server::SocketOptions;
use shims::Shims;

pub(super) use sample::{SamplePluginArgs, run as run_sample};

/// Show what the broker does, in 15 seconds and without a cluster
///
/// Starts a broker on a private socket with a sample plugin whose token expires after 20 seconds. Calls it like kubectl
/// does (one cold call, one warm call, 50 calls at once), waits for one refresh ahead of expiry, and prints the times.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}

const PROVIDER: &str = "sample";
const AT_ONCE: usize = 50;
/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// Interval at which the demo checks whether the credential was renewed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A line of the table.
struct DemoStep {
    what: &'static str,
    calls: usize,
    took: Duration,
    /// Plugin runs during this step.
    runs: usize,
    remark: String,
}

pub(super) fn run(_: &DemoArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    // Independent of the umask, because the broker refuses a socket or a configuration that others could replace.
    let private = fs::Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().prefix("credbroker-demo-").permissions(private).tempdir();
    let directory = directory.context("cannot make a private directory")?;
    let demo = Demo { shims: Shims::new(directory.path())?, directory: directory.path().to_owned() };
    let config = demo.config(environment)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    match runtime.block_on(demo.with_broker(config, environment))? {
        Some(steps) => print(&steps, out).map(|()| 0),
        None => Ok(INTERRUPTED),
    }
}

struct Demo {
    directory: PathBuf,
    shims: Shims,
}

impl Demo {
    /// A configuration with one provider: this binary as the sample plugin. A group may write to where it was built.
    fn config(&self, environment: &Environment) -> anyhow::Result<Config> {
        let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
        let text = format!(
            "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nproviders:\n- name: {PROVIDER}\n  execConfig:\n    \
             apiVersion: client.authentication.k8s.io/v1\n    command: {}\n    args: [sample-plugin, --runs, {}]\n    \
             interactiveMode: Never\n  sandbox: compatible\n",
            quoted(self.shims.program()),
            quoted(&self.runs_file()),
        );
        let file = self.directory.join("config.yaml");
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        Ok(config::load(Some(&file), environment)?.config)
    }

    /// Runs the steps. `None`: a signal came first. In any case the broker and all processes have ended.
    async fn with_broker(
        &self,
        config: Config,
        environment: &Environment,
    ) -> anyhow::Result<Option<Vec<DemoStep>>> {
        let mut signals = CommandSignals::new();
        let path = self.shims.socket().to_owned();
        let options = SocketOptions { path, mode: 0o600, group: None, shared_directory: false };
        let mut bound = app::build(config, vec![Listening::at(options)], Edges::system(environment))?;
        let steps = tokio::select! {
            task = bound.serve() => Err(anyhow!("the {task} ended unexpectedly")),
            () = signals.received() => Ok(None),
            steps = self.steps() => steps.map(Some),
        };
        ensure!(bound.drain().await == Drained::Whole, "the broker did not stop in time");
        steps
    }

    async fn steps(&self) -> anyhow::Result<Vec<DemoStep>> {
        let progress = Progress::new();
        progress.show("cold call: the plugin runs ...");
        let cold = self.calls("cold call", 1, "the plugin ran").await?;
        progress.show("warm call ...");
        let warm = self.calls("warm call", 1, "from memory").await?;
        progress.show("50 calls at once ...");
        let many = self.calls("50 shims at once", AT_ONCE, "from memory, all the same token").await?;
        let refresh = self.refresh(&progress).await?;
        progress.show("call after the refresh ...");
        let after = self.calls("warm call", 1, "the new token, from memory").await?;
        Ok(vec![cold, warm, many, refresh, after])
    }

    /// Starts `calls` shims at once, which must print the same token.
    async fn calls(&self, what: &'static str, calls: usize, remark: &str) -> anyhow::Result<DemoStep> {
        let before = self.runs();
        let took = self.shims.call(PROVIDER, calls).await?;
        Ok(DemoStep { what, calls, took, runs: self.runs() - before, remark: remark.to_owned() })
    }

    /// Waits until the broker has renewed the credential ahead of expiry.
    async fn refresh(&self, progress: &Progress) -> anyhow::Result<DemoStep> {
        let (before, started) = (self.runs(), SystemClock.now());
        let client = Client::connect(&Socket::at(self.shims.socket())).await?;
        let reference = CredentialRef::provider(PROVIDER);
        let old = client.credential(&reference).await?;
        loop {
            let (new, now) = (client.credential(&reference).await?, SystemClock.now());
            let waited = now.boot.saturating_sub(started.boot);
            if new.generation() != old.generation() {
                let left = old.expires_at().and_then(|expiry| expiry.duration_since(now.wall).ok());
                let left = left.context("the old token expired before the refresh")?;
                let remark = format!("{:.0} s early; no caller waited", left.as_secs_f64());
                let runs = self.runs() - before;
                return Ok(DemoStep {
                    what: "refresh ahead of expiry",
                    calls: 0,
                    took: waited,
                    runs,
                    remark,
                });
            }
            ensure!(waited < sample::LIFETIME, "the token was not renewed within its lifetime");
            progress.show(&format!("waiting for the refresh ahead of expiry ... {} s", waited.as_secs()));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.runs_file()).map(|text| text.lines().count()).unwrap_or_default()
    }

    fn runs_file(&self) -> PathBuf {
        self.directory.join("runs")
    }
}

fn print(steps: &[DemoStep], out: &mut dyn Write) -> anyhow::Result<()> {
    let rows = steps.iter().map(|step| {
        let calls = if step.calls == 0 { String::new() } else { step.calls.to_string() };
        let took = if step.took < Duration::from_secs(1) {
            format!("{:.1} ms", step.took.as_secs_f64() * 1e3)
        } else {
            format!("{:.1} s", step.took.as_secs_f64())
        };
        [step.what.to_owned(), calls, took, step.runs.to_string(), step.remark.clone()]
    });
    write!(out, "{}", unfitted(["WHAT RAN", "CALLS", "TOOK", "RUNS", ""], rows))?;
    let (calls, runs): (usize, usize) =
        (steps.iter().map(|step| step.calls).sum(), steps.iter().map(|step| step.runs).sum());
    writeln!(
        out,
        "\n{calls} calls, {runs} plugin runs. Without a broker, each call runs the plugin, for\nhalf a second."
    )?;
    writeln!(
        out,
        "Next: `credbroker serve &`, `credbroker kubeconfig wrap -o FILE`, and\n`KUBECONFIG=FILE kubectl get pods`."
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
