//! What the services, the metrics and the health of a broker are about.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{access::Policies, clusters::Clusters};
use credbroker_cache::CredentialCache;
use credbroker_fleet::resolver::Resolver;
use credbroker_observe::{audit::Audit, metrics::Metrics};

/// The parts of a broker. Everything that answers shares them.
#[derive(Debug)]
pub struct Broker<R> {
    /// Holds and fetches the credentials.
    pub cache: CredentialCache<R>,
    /// Finds the run that a request leads to.
    pub resolver: Arc<Resolver>,
    /// Empty while the broker reads no ClusterProfiles.
    pub clusters: Arc<Clusters<R>>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Takes the decisions about requests.
    pub audit: Audit,
    /// The active access rules.
    pub policies: Policies,
    /// The active configuration, and the problems of a newer one.
    pub configuration: watch::Receiver<Arc<ReloadState>>,
    /// When the broker started.
    pub started: SystemTime,
    /// Paths of the sockets that the broker listens on. Sockets without a path are left out.
    pub sockets: Vec<PathBuf>,
    /// Cancelled first when the broker stops: then its health says so, and requests are still answered.
    pub stopping: CancellationToken,
}

/// Which configuration is active, and why a newer one is not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReloadState {
    /// Files that the active configuration was read from.
    pub files: Vec<PathBuf>,
    /// When they were read last and had no problem.
    pub last_success: SystemTime,
    /// Changed configurations that became active since the broker started.
    pub reloads: u64,
    /// Changed configurations that were not, since the broker started.
    pub failures: u64,
    /// Why the files are not active as they are now, each problem with its file, line and column. Empty: they are.
    pub problems: Vec<String>,
    /// When the first problem of those in a row was noticed.
    pub problems_since: Option<SystemTime>,
    /// Keys that have changed, and whose new value is used after a restart.
    pub restart_needed: Vec<&'static str>,
}

impl ReloadState {
    /// The state of a broker that has read `files` at `now`, when it started.
    pub fn started(files: Vec<PathBuf>, now: SystemTime) -> Self {
        let (problems, problems_since, restart_needed) = (Vec::new(), None, Vec::new());
        let (reloads, failures) = (0, 0);
        Self { files, last_success: now, reloads, failures, problems, problems_since, restart_needed }
    }
}

#[cfg(test)]
mod tests;
