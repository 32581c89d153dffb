//! What a broker reports about itself.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use credbroker_proto::v1 as pb;
use tokio::sync::watch;

use super::convert;

/// Facts about a broker.
#[derive(Clone, Debug)]
pub struct BrokerInfo {
    /// Time when the broker started.
    pub started: SystemTime,
    /// The configuration in force, and the problems of a newer one.
    pub configuration: watch::Receiver<Arc<ReloadState>>,
    /// Paths of the sockets that the broker listens on. Sockets without a path are left out.
    pub sockets: Vec<PathBuf>,
}

/// Which configuration is in force, and why a newer one is not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReloadState {
    /// Files that the configuration in force was read from.
    pub files: Vec<PathBuf>,
    /// When they were read last and had no problem.
    pub last_success: SystemTime,
    /// Changed configurations that were put in force since the broker started.
    pub reloads: u64,
    /// Changed configurations that were not, since the broker started.
    pub failures: u64,
    /// Why the files are not in force as they are now; `None`: they are.
    pub failure: Option<ReloadFailure>,
    /// Keys that have changed, and whose new value is used after a restart.
    pub restart_needed: Vec<&'static str>,
}

/// Why a changed configuration is not in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReloadFailure {
    /// When the first of the failures in a row was noticed.
    pub since: SystemTime,
    /// Each problem with its file, line and column. At least one.
    pub problems: Vec<String>,
}

impl ReloadState {
    /// The state of a broker that has read `files` at `now`, when it started.
    pub fn started(files: Vec<PathBuf>, now: SystemTime) -> Self {
        Self { files, last_success: now, reloads: 0, failures: 0, failure: None, restart_needed: Vec::new() }
    }

    fn message(&self) -> pb::ConfigurationState {
        pb::ConfigurationState {
            read_time: convert::timestamp(self.last_success),
            reloads: self.reloads,
            problems: self.failure.as_ref().map(|failure| failure.problems.clone()).unwrap_or_default(),
            problems_since_time: self.failure.as_ref().and_then(|failure| convert::timestamp(failure.since)),
            restart_needed: self.restart_needed.iter().map(|key| (*key).to_owned()).collect(),
        }
    }
}

impl BrokerInfo {
    pub(super) fn message(&self, hub: Option<pb::HubState>) -> pb::GetBrokerInfoResponse {
        let configuration = Arc::clone(&self.configuration.borrow());
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        pb::GetBrokerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("CREDBROKER_COMMIT").and_then(|commit| convert::present(commit.to_owned())),
            start_time: convert::timestamp(self.started),
            config_files: paths(&configuration.files),
            sockets: paths(&self.sockets),
            hub,
            configuration: Some(configuration.message()),
        }
    }
}
