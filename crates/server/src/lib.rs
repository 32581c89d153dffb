//! The gRPC services of the broker, and its metrics and health over HTTP.
//!
//! A [`Gate`] is what [`credbroker_uds_server`] serves: it decides which peer may call, and hands each call to the
//! services of its [`Broker`].

mod access;
mod admin;
mod attend;
mod audit_record;
mod broker;
mod clusters;
mod convert;
mod credentials;
mod gate;
mod health;
mod metrics;
mod monitor;
mod paging;
mod preencoded;
mod references;
mod status;
mod watch;

pub use access::{Access, Policies};
pub use audit_record::record_runs;
pub use broker::{Broker, ReloadState};
pub use clusters::Clusters;
pub use gate::{Gate, principal};
pub use monitor::{Monitor, MonitorListener, MonitorParts, Reach, WriteMetrics};
pub use preencoded::encode;
pub use status::remedy;
