//! What a broker reports about itself.

use std::{path::PathBuf, time::SystemTime};

use credbroker_proto::v1 as pb;

use super::convert;

/// Facts about a broker that do not change while it runs.
#[derive(Clone, Debug)]
pub struct BrokerInfo {
    /// Time when the broker started.
    pub started: SystemTime,
    /// Files that the configuration was read from.
    pub config_files: Vec<PathBuf>,
    /// Paths of the sockets that the broker listens on. Sockets without a path are left out.
    pub sockets: Vec<PathBuf>,
}

impl BrokerInfo {
    pub(super) fn message(&self, hub: Option<pb::HubState>) -> pb::GetBrokerInfoResponse {
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        pb::GetBrokerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("CREDBROKER_COMMIT").and_then(|commit| convert::present(commit.to_owned())),
            start_time: convert::timestamp(self.started),
            config_files: paths(&self.config_files),
            sockets: paths(&self.sockets),
            hub,
        }
    }
}
