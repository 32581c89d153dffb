//! From files to a checked [`Config`]. All problems are reported together, with their positions.
//!
//! [`load`] finds and reads the configuration; [`reload`] does so for a broker that runs. Every key is declared once, in
//! `table`, from which the readers come. [`kubeconfig`] reads kubeconfigs, whose users become providers.

mod access;
mod cluster_profiles;
mod endpoints;
mod file;
pub mod kubeconfig;
mod load;
mod problem;
mod provider;
mod proxy;
mod schema;
mod table;

pub use cluster_profiles::{ClusterProfiles, HUB_PROVIDER, Prewarm};
pub use endpoints::{AuditTo, Listen, MetricsAddress, MetricsListen, group_id};
pub use file::{authorities, distrust};
pub use kubeconfig::{Definitions, HubKubeconfig, OwnContext, definitions, own_contexts, stored_context};
pub use load::{Config, Loaded, expanded, load, place, read_kubeconfig, reload};
pub use problem::{ConfigError, Problem, Sources};
pub use proxy::{ProxySection, ProxyTls};
pub use table::Limits;

#[cfg(test)]
mod tests;
