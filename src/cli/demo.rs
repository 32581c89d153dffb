//! `credbroker demo`: a broker, a sample plugin and its callers, all in this binary.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use credbroker_client::{Client, CredentialRef, Socket};
use futures_util::future::try_join_all;
use prost_types::Timestamp;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{
    console::Console,
    screen::{Progress, unfitted},
};
use crate::app::{self, Daemon as _, Drained, Edges, Listening, Signals};
use credbroker_config::{self as config, Config};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;
use credbroker_uds_server::SocketOptions;

/// Show what the broker does, in 15 seconds and without a cluster
///
/// Starts a broker on a private socket with a sample plugin whose token expires after 20 seconds. Calls it like kubectl
/// does (one cold call, one warm call, 50 calls in parallel), waits for one refresh ahead of expiry, and prints the times.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}

const PROVIDER: &str = "sample";
const AT_ONCE: usize = 50;
/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

struct DemoStep {
    what: &'static str,
    calls: usize,
    took: Duration,
    runs: usize,
    remark: String,
}

pub(super) fn run(_: &DemoArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let stage = Stage::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    match runtime.block_on(with_broker(&stage, console.environment))? {
        Some(steps) => print(&steps, console.out).map(|()| 0),
        None => Ok(INTERRUPTED),
    }
}

/// Runs the steps. `None`: a signal came first. In any case the broker and all processes have ended.
async fn with_broker(stage: &Stage, environment: &Environment) -> anyhow::Result<Option<Vec<DemoStep>>> {
    let mut signals = Signals::catch().context("cannot handle signals")?;
    let options =
        SocketOptions { path: stage.socket.clone(), mode: 0o600, group: None, shared_directory: false };
    let (config, edges) = (stage.config(environment)?, Edges::system(environment));
    let mut bound = app::build(config, vec![Listening::at(options)], edges)?;
    let steps = tokio::select! {
        task = bound.serve() => Err(anyhow!("the {task} ended unexpectedly")),
        _ = signals.next() => Ok(None),
        steps = steps(stage) => steps.map(Some),
    };
    ensure!(bound.drain().await == Drained::Whole, "the broker did not stop in time");
    steps
}

async fn steps(stage: &Stage) -> anyhow::Result<Vec<DemoStep>> {
    Ok(vec![
        calls(stage, "cold call", 1, "the plugin ran").await?,
        calls(stage, "warm call", 1, "from memory").await?,
        calls(stage, "50 shims in parallel", AT_ONCE, "from memory, all the same token").await?,
        refresh(stage).await?,
        calls(stage, "warm call", 1, "the new token, from memory").await?,
    ])
}

/// Starts `calls` shims in parallel, which must print the same token.
async fn calls(stage: &Stage, what: &'static str, calls: usize, remark: &str) -> anyhow::Result<DemoStep> {
    let (before, started) = (stage.runs(), SystemClock.now().boot);
    let children = (0..calls).map(|_| stage.shim()).collect::<Result<Vec<_>, _>>();
    let children = children.context("cannot start a shim")?.into_iter().map(Child::wait_with_output);
    let outputs = try_join_all(children).await.context("cannot wait for a shim")?;
    let took = SystemClock.now().boot.saturating_sub(started);
    for Output { status, stderr, .. } in &outputs {
        ensure!(status.success(), "a shim failed: {}", String::from_utf8_lossy(stderr).trim());
    }
    let is_same = |pair: &[Output]| matches!(pair, [one, other] if one.stdout == other.stdout);
    ensure!(outputs.windows(2).all(is_same), "two shims printed different credentials");
    Ok(DemoStep { what, calls, took, runs: stage.runs() - before, remark: remark.to_owned() })
}

async fn refresh(stage: &Stage) -> anyhow::Result<DemoStep> {
    let (before, started, progress) = (stage.runs(), SystemClock.now(), Progress::new());
    let client = Client::connect(&Socket::at(&stage.socket)).await?;
    let reference = CredentialRef::provider(PROVIDER);
    let old = client.credential(&reference).await?;
    loop {
        let (new, now) = (client.credential(&reference).await?, SystemClock.now());
        let took = now.boot.saturating_sub(started.boot);
        if new.generation() != old.generation() {
            let left = old.expires_at().and_then(|expiry| expiry.duration_since(now.wall).ok());
            let left = left.context("the old token expired before the refresh")?;
            let remark = format!("{:.0} s early; no caller waited", left.as_secs_f64());
            let (what, runs) = ("refresh ahead of expiry", stage.runs() - before);
            return Ok(DemoStep { what, calls: 0, took, runs, remark });
        }
        ensure!(took < LIFETIME, "the token was not refreshed within its lifetime");
        progress.show(&format!("waiting for the refresh ahead of expiry ... {} s", took.as_secs()));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print(steps: &[DemoStep], out: &mut dyn Write) -> anyhow::Result<()> {
    let rows = steps.iter().map(|step| {
        let calls = if step.calls == 0 { String::new() } else { step.calls.to_string() };
        let seconds = step.took.as_secs_f64();
        let took = if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.1} s") };
        [step.what.to_owned(), calls, took, step.runs.to_string(), step.remark.clone()]
    });
    write!(out, "{}", unfitted(["WHAT RAN", "CALLS", "TOOK", "RUNS", ""], rows))?;
    let calls: usize = steps.iter().map(|step| step.calls).sum();
    let runs: usize = steps.iter().map(|step| step.runs).sum();
    writeln!(
        out,
        "\n{calls} calls, {runs} plugin runs. Without a broker, each call runs the plugin, for\nhalf a second.\nNext: `credbroker serve &`, `credbroker kubeconfig wrap -o FILE`, and\n`KUBECONFIG=FILE kubectl get pods`."
    )?;
    Ok(())
}

/// What the demo needs: a private directory, and this binary as the plugin and as the callers that kubectl starts.
struct Stage {
    program: PathBuf,
    directory: TempDir,
    socket: PathBuf,
    /// Gets a line for each run of the plugin.
    runs_file: PathBuf,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        // Independent of the umask, because the broker refuses a socket or a configuration that others could replace.
        let private = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix("credbroker-demo-").permissions(private).tempdir();
        let program = std::env::current_exe().context("cannot find the file of this program")?;
        let directory = directory.context("cannot make a private directory")?;
        let (socket, runs_file) = (directory.path().join("credbroker.sock"), directory.path().join("runs"));
        Ok(Self { program, directory, socket, runs_file })
    }

    /// A configuration with this binary as the plugin. A group may write to where it was built.
    fn config(&self, environment: &Environment) -> anyhow::Result<Config> {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": self.program.to_string_lossy(),
            "args": ["sample-plugin", "--runs", self.runs_file.to_string_lossy()],
            "interactiveMode": "Never",
        });
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": [{"name": PROVIDER, "execConfig": exec, "sandbox": "Compatible"}],
        });
        let file = self.directory.path().join("config.yaml");
        fs::write(&file, config.to_string())?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        Ok(config::load(Some(&file), environment)?.config)
    }

    fn runs(&self) -> usize {
        fs::read_to_string(&self.runs_file).map(|text| text.lines().count()).unwrap_or_default()
    }

    /// This binary as the exec plugin that kubectl starts. It is killed when its future is dropped.
    fn shim(&self) -> std::io::Result<Child> {
        #[expect(clippy::disallowed_methods, reason = "the demo starts this program itself, not a plugin")]
        let mut command = Command::new(&self.program);
        command.args(["shim", "--provider", PROVIDER, "--socket"]).arg(&self.socket).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }
}

/// Print an ExecCredential after a pause, and record the run
#[derive(Debug, clap::Args)]
pub(super) struct SamplePluginArgs {
    /// File that gets a line for each run
    #[arg(long, value_name = "FILE")]
    runs: PathBuf,
}

/// The time that `aws eks get-token` takes on a fast network.
const PAUSE: Duration = Duration::from_millis(500);
const LIFETIME: Duration = Duration::from_secs(20);

pub(super) fn run_sample(args: &SamplePluginArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    let runs = fs::OpenOptions::new().append(true).create(true).open(&args.runs);
    writeln!(runs.context("cannot record this run")?, "run")?;
    std::thread::sleep(PAUSE);
    let expires = Timestamp::from(SystemClock.now().wall + LIFETIME);
    let token = format!("sample-{:016x}", fastrand::u64(..));
    let document = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": expires.to_string()},
    });
    writeln!(out, "{document}")?;
    Ok(0)
}

#[cfg(test)]
mod tests;
