//! The broker under test, a separate process.

use std::{
    env::current_exe,
    ffi::OsStr,
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use credbroker_client::{Client, Socket};
use credbroker_lab::{
    oracle::Oracle,
    programs,
    token::{PROVIDERS, provider},
};
use credbroker_test_support::{private_directory, private_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use crate::{leftovers, plugin};

/// The broker starts and stops within this time.
const LIMIT: Duration = Duration::from_secs(30);
/// Time between two changes of the configuration.
const RELOAD: Duration = Duration::from_secs(20);
/// Longest time until a change is active.
const ACTIVE_WITHIN: Duration = Duration::from_secs(10);

/// A running broker.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    directory: TempDir,
    config: ConfigFile,
}

/// What was left of a broker that was stopped.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    pub(crate) status: ExitStatus,
    pub(crate) zombies: usize,
    pub(crate) processes: usize,
    pub(crate) files: usize,
    pub(crate) runs: u64,
    pub(crate) faults: u64,
}

/// The configuration of the broker.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    directory: PathBuf,
    nonce: String,
}

impl Broker {
    pub(crate) fn start(nonce: &str) -> Result<Self> {
        let directory = private_directory();
        let path = |name: &str| directory.path().join(name);
        fs::copy(current_exe().context("the path of this program")?, path(plugin::PROGRAM))?;
        fs::set_permissions(path(plugin::PROGRAM), fs::Permissions::from_mode(0o700))?;
        fs::create_dir(path("tmp"))?;
        let config = ConfigFile { directory: directory.path().to_owned(), nonce: nonce.to_owned() };
        config.write(0)?;
        let mut command = Command::new(programs::credbroker()?);
        command
            .arg("serve")
            .arg("--config")
            .arg(config.path())
            .arg("--socket")
            .arg(path("run/credbroker.sock"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", directory.path())
            .env("TMPDIR", path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(path("log"))?);
        let child = command.spawn().context("the broker")?;
        let mut broker = Self { child, directory, config };
        let start = Instant::now();
        while UnixStream::connect(broker.path()).is_err() {
            broker.check()?;
            ensure!(start.elapsed() < LIMIT, "the broker did not listen within {LIMIT:?}");
            sleep(Duration::from_millis(10));
        }
        Ok(broker)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run/credbroker.sock")
    }

    pub(crate) fn socket(&self) -> Socket {
        Socket::at(self.path())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn config(&self) -> ConfigFile {
        self.config.clone()
    }

    /// Fails if the broker has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        bail!("the broker ended ({status}); its log:\n{log}")
    }

    /// Stops the broker with SIGTERM.
    pub(crate) fn stop(mut self, nonce: &str) -> Result<Rest> {
        let zombies = leftovers::zombies(self.pid());
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, Signal::TERM)?;
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None => ensure!(start.elapsed() < LIMIT, "the broker did not stop within {LIMIT:?}"),
            }
            sleep(Duration::from_millis(10));
        };
        let directory = self.directory.path();
        let size = |file: &Path| fs::metadata(file).map_or(0, |metadata| metadata.len());
        let entries: Vec<_> = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let is_count = |path: &&PathBuf| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("runs-"))
        };
        Ok(Rest {
            status,
            zombies,
            processes: leftovers::with_argument(nonce).len(),
            files: fs::read_dir(directory.join("tmp"))?.count(),
            runs: entries.iter().filter(is_count).map(|path| size(path)).sum(),
            faults: size(&directory.join("faults")),
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl ConfigFile {
    fn path(&self) -> PathBuf {
        self.directory.join("config.yaml")
    }

    /// Writes the configuration with a provider `spare-NUMBER`, which is never requested.
    fn write(&self, number: usize) -> Result<()> {
        let item = |name: String| {
            json!({
                "name": name,
                "callerEnv": ["AWS_PROFILE"],
                "timeout": "3s",
                "execConfig": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": self.directory.join(plugin::PROGRAM),
                    "args": plugin::arguments(&self.directory, &name, &self.nonce),
                    "interactiveMode": "Never",
                },
            })
        };
        let providers: Vec<_> =
            (0..PROVIDERS).map(provider).chain([format!("spare-{number}")]).map(item).collect();
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": providers,
        });
        let new = self.directory.join("config.new");
        private_file(&new, &config.to_string());
        Ok(fs::rename(new, self.path())?)
    }

    /// Changes the configuration until `stop`, and returns how often. Each change must be active soon, and no other
    /// provider may notice it.
    pub(crate) async fn rewrite(
        self,
        socket: Socket,
        oracle: Arc<Oracle>,
        stop: CancellationToken,
    ) -> Result<usize> {
        let mut ticks = interval(RELOAD);
        ticks.tick().await;
        for number in 1.. {
            tokio::select! {
                _ = ticks.tick() => self.write(number)?,
                () = stop.cancelled() => return Ok(number - 1),
            }
            // The broker closes a connection on which no call is made.
            let admin = Client::connect(&socket).await?.admin();
            let (start, name) = (Instant::now(), format!("spare-{number}"));
            while !admin.providers().await?.iter().any(|provider| provider.name == name) {
                if start.elapsed() > ACTIVE_WITHIN {
                    oracle.violation(format!("the provider {name} is not active after {ACTIVE_WITHIN:?}"));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(0)
    }
}
