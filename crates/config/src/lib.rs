//! From files to a checked `Config`. All problems are reported at once, with their positions.

mod access;
mod audit;
mod broker;
mod cluster_profiles;
mod definitions;
mod fields;
mod file;
mod inventory;
mod issuers;
mod keys;
mod kinds;
pub mod kubeconfig;
mod limits;
mod listen;
mod load;
mod metrics;
mod policy;
mod problem;
mod provider;
mod reader;
mod reference;
mod sources;
mod stanza;
mod table;
mod unlisted;

use std::path::PathBuf;

use credbroker_plugin::{Providers, access::Rule};

pub use audit::AuditTo;
pub use cluster_profiles::{ClusterProfiles, HUB_PROVIDER, HubAccess, HubSource, Prewarm};
pub use definitions::{Definitions, definitions, expanded, read_kubeconfig};
pub use file::{authorities, distrust};
pub use limits::Limits;
pub use listen::{Listen, group_id};
pub use load::{Loaded, load, place, reload};
pub use metrics::{MetricsAddress, MetricsListen};
pub use problem::{ConfigError, Problem};
pub use reference::{json_schema, markdown};
pub use sources::Sources;

/// A configuration, checked. Immutable.
#[derive(Debug)]
pub struct Config {
    /// The sockets that the broker listens on; at least one.
    pub listen: Vec<Listen>,
    /// Every configured plugin.
    pub providers: Providers,
    /// Limits of the whole broker.
    pub limits: Limits,
    /// Where metrics and health are served over HTTP; `None`: nowhere.
    pub metrics: Option<MetricsListen>,
    /// The hub that ClusterProfiles are read from; `None`: no ClusterProfiles are read.
    pub cluster_profiles: Option<ClusterProfiles>,
    /// The access rules; empty: the broker's own user and root may do everything.
    pub access: Vec<Rule>,
    /// Where decisions and runs are recorded.
    pub audit: AuditTo,
    /// The files that it was read from, including kubeconfigs.
    pub files: Vec<PathBuf>,
}

#[cfg(test)]
mod tests;
