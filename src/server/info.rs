//! What a broker says about itself.

use std::{path::PathBuf, time::SystemTime};

use credbroker_proto::v1 as pb;

use super::convert;

/// What does not change while a broker runs.
#[derive(Clone, Debug)]
pub struct BrokerInfo {
    /// When it started.
    pub started: SystemTime,
    /// The files that its configuration was read from.
    pub config_files: Vec<PathBuf>,
    /// The sockets that it listens on, as far as they have names.
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
