//! Plugin runs with real processes: shell scripts under the real launcher.

mod cage;
mod endings;
mod many;
mod reasons;
mod surroundings;
mod trust;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use credbroker_test_support::{private_directory, private_file};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use credbroker_config as config;
use credbroker_fleet::resolver::{CredentialRequest, Resolver, Source};
use credbroker_plugin::{Command, Environment, PluginSpec, Provider, Providers, Sandbox};
use credbroker_runner::{LiveRuns, ProcessRunner, RunError, RunErrorKind, RunLimits, RunnerParts};

/// Longer than any step takes, also on a slow machine.
const AGES: Duration = Duration::from_secs(60);
/// What a script does that waits for the end of [`Plugin::run_and_refuse`].
const UNTIL_REFUSED: &str = "while [ ! -e $STATE/refused ]; do sleep 0.01; done";

/// A plugin on disk with its own runner. Scripts find the home of the plugin in `$STATE`.
struct Plugin {
    home: TempDir,
    limits: RunLimits,
    provider: Provider,
    path: PathBuf,
}

impl Plugin {
    fn script(body: &str) -> Self {
        let home = private_directory();
        let path = home.path().join("plugin");
        write_executable(&path, &format!("#!/bin/sh\n{body}\n"));
        Self::program(home, path)
    }

    fn program(home: TempDir, path: PathBuf) -> Self {
        let state = home.path().to_str().unwrap().to_owned();
        fs::create_dir(home.path().join("runs")).unwrap();
        let stanza = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": path, "interactiveMode": "Never",
            "env": [{"name": "STATE", "value": state}],
        });
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
            "providers": [{"name": "test", "timeout": "60s", "execConfig": stanza}],
        });
        let file = home.path().join("config.yaml");
        private_file(&file, &config.to_string());
        let environment = Environment::from_iter([("PATH", "/usr/local/bin:/usr/bin:/bin")]);
        let loaded = config::load(Some(&file), &environment).unwrap();
        let provider = (**loaded.config.providers.find("test").unwrap()).clone();
        let limits = RunLimits { terminate_grace: AGES, stdout_grace: AGES, ..RunLimits::default() };
        Self { home, limits, provider, path }
    }

    /// The same plugin by a bare name, with its home as `PATH`.
    fn of(mut self, name: &str) -> Self {
        self.provider.command = Command::Name(name.into());
        let path = self.home.path().into();
        Arc::make_mut(&mut self.provider.inherited).0.insert("PATH".into(), path);
        self
    }

    fn spec(self) -> (Started, Arc<PluginSpec>) {
        let providers = Providers::new([self.provider]);
        let request = CredentialRequest { source: Source::Provider("test".into()), ..Default::default() };
        let spec = Resolver::new(Arc::new(providers), None).resolve(request).unwrap();
        let tasks = TaskTracker::new();
        tasks.close();
        let live = LiveRuns::default();
        let runner = ProcessRunner::new(RunnerParts {
            limits: self.limits,
            launcher: env!("CARGO_BIN_EXE_credbroker").into(),
            scratch: self.home.path().join("runs"),
            tasks: tasks.clone(),
            live: live.clone(),
        });
        (Started { home: self.home, runner, tasks, live }, Arc::new(spec))
    }

    /// Runs the plugin once, and checks that the run leaves nothing behind.
    async fn run(self) -> (Result<String, RunError>, Started) {
        self.run_while(async |_| ()).await
    }

    /// As [`run`](Self::run), for a plugin that writes the number of a process to `$STATE/caller`. A request of that process
    /// is refused, and then `$STATE/refused` is there.
    async fn run_and_refuse(self) -> (Result<String, RunError>, Started) {
        let refuse = async |started: &Started| {
            let caller = started.pid("caller").await;
            started.live.find(caller).unwrap().refused.cancel();
            fs::write(started.file("refused"), "").unwrap();
        };
        self.run_while(refuse).await
    }

    async fn run_while(self, during: impl AsyncFnOnce(&Started)) -> (Result<String, RunError>, Started) {
        let (started, spec) = self.spec();
        let run = timeout(AGES, started.runner.stdout(&spec, Arc::default()));
        let (stdout, ()) = tokio::join!(run, during(&started));
        let stdout = stdout.expect("the run ends");
        let stdout = stdout.map(|(bytes, _)| String::from_utf8(bytes.to_vec()).unwrap());
        started.leaves_nothing().await;
        (stdout, started)
    }
}

/// A plugin with its runner.
struct Started {
    home: TempDir,
    runner: ProcessRunner,
    tasks: TaskTracker,
    live: LiveRuns,
}

impl Started {
    /// Waits until its runs have ended and their directories are removed, and checks that.
    async fn leaves_nothing(&self) {
        timeout(AGES, self.tasks.wait()).await.expect("the removal ends");
        assert!(self.live.find(std::process::id()).is_none(), "no run is in the list");
        let left = std::process::Command::new("find")
            .arg(self.file("runs"))
            .args(["-mindepth", "1", "-ls"])
            .output()
            .unwrap();
        assert!(left.stdout.is_empty(), "its directory is gone: {}", String::from_utf8_lossy(&left.stdout));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Waits until the script has written a line to `name`, and returns its number.
    async fn pid(&self, name: &str) -> u32 {
        let file = self.file(name);
        let written = || fs::read_to_string(&file).ok()?.strip_suffix('\n')?.parse().ok();
        eventually(name, written).await
    }

    /// Waits until the process with the number in `name` has ended.
    async fn is_gone(&self, name: &str) {
        let pid = self.pid(name).await;
        eventually("the end of the process", || (!is_alive(pid)).then_some(())).await;
    }
}

fn write_executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// A zombie is not alive: its new parent may not have reaped it yet.
fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// State and parent of a process.
fn state(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

async fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let found = async {
        loop {
            match look() {
                Some(found) => break found,
                None => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    timeout(AGES, found).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
