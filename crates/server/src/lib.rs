//! The gRPC services of the broker, and its metrics and health over HTTP.
//!
//! A [`Gate`] is what [`credbroker_uds_server`] serves: it decides which peer may call, and hands each call to the
//! [services].

mod access;
mod admin;
mod attend;
mod audit_record;
mod clusters;
mod convert;
mod credentials;
mod exposition;
mod gate;
mod health;
mod monitor;
mod overview;
mod paging;
mod preencoded;
mod readiness;
mod rpc_metrics;
mod service;
mod status;

pub use access::{Access, Policies};
pub use audit_record::record_runs;
pub use clusters::Clusters;
pub use gate::{Admission, Gate};
pub use monitor::{Monitor, MonitorListener, MonitorParts, ProviderNames};
pub use overview::{BrokerInfo, ReloadFailure, ReloadState};
pub use preencoded::encode;
pub use readiness::HealthChecks;
pub use service::{BrokerService, Services, services};
