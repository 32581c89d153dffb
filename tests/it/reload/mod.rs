//! The broker follows its files.

mod files;
mod hub;
mod others;
mod problems;
mod process;
mod rights;
mod writers;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use credbroker_client::{Error, Reason};
use credbroker_server::ReloadState;
use credbroker_test_support::{FakePlugin, Kubeconfig, private_directory, private_file};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::harness::{Ahead, InProcess, token};

/// Longer than any step takes, also on a slow machine.
const AGES: Duration = Duration::from_secs(60);

/// A plugin that always prints `text`, for an hour.
fn prints(text: &str) -> FakePlugin {
    FakePlugin::builder().token(text).expires_in(3600).build()
}

/// A kubeconfig whose users run these plugins.
fn users(users: &[(&str, &FakePlugin)]) -> String {
    let all = users.iter().fold(Kubeconfig::new(), |all, (name, plugin)| {
        let mut stanza = plugin.exec_stanza();
        stanza["provideClusterInfo"] = json!(false);
        all.exec_user(name, &stanza)
    });
    all.to_yaml()
}

/// A broker of the users of one kubeconfig.
struct Followed {
    directory: TempDir,
    broker: InProcess,
    clock: Arc<Ahead>,
}

impl Followed {
    /// With this text in the kubeconfig. Returns when the files are followed.
    async fn start(text: &str) -> Self {
        let (directory, clock) = (private_directory(), Arc::new(Ahead::default()));
        let file = directory.path().join("users");
        private_file(&file, text);
        let sections = json!({"kubeconfigs": [file]});
        let broker = InProcess::with_clock(sections, &[], Arc::<Ahead>::clone(&clock));
        let mut states = broker.configuration.clone();
        timeout(AGES, states.changed()).await.expect("a first look").unwrap();
        Self { directory, broker, clock }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("users")
    }

    /// Writes the kubeconfig in place, as `aws eks update-kubeconfig` does.
    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    /// The token of `provider`, or why there is none.
    async fn ask(&self, provider: &str) -> Result<String, Option<Reason>> {
        match self.broker.get(provider).await {
            Ok(credential) => Ok(token(&credential).to_owned()),
            Err(Error::Failed(failure)) => Err(failure.reason),
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until the state of the configuration is so.
    async fn until(&self, is_so: impl Fn(&ReloadState) -> bool) -> Arc<ReloadState> {
        let mut states = self.broker.configuration.clone();
        let reached = timeout(AGES, states.wait_for(|state| is_so(state))).await;
        Arc::clone(&reached.expect("the configuration becomes so").unwrap())
    }

    /// Waits until so many changes are active.
    async fn reloads(&self, count: u64) {
        self.until(|state| state.reloads == count).await;
    }
}

fn problems(state: &ReloadState) -> &[String] {
    &state.problems
}

/// A rename over `file`, as editors and `kubectl config` do.
fn rename_over(file: &Path, text: &str) {
    let new = file.with_extension("new");
    private_file(&new, text);
    std::fs::rename(new, file).unwrap();
}
