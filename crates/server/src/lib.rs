//! gRPC on a Unix socket: our own accept loop over hyper's HTTP/2 connections, with tonic's routes on top.
//!
//! tonic's own server cannot set every HTTP/2 limit, time out a handshake, survive a lack of descriptors, or drain.

mod accept;
mod access;
mod admin;
mod attend;
mod audit_record;
mod clusters;
mod codec;
mod connection;
mod convert;
mod credentials;
mod deadline;
mod encode;
mod exchange;
mod follow;
mod greeting;
mod health;
mod identity;
mod info;
mod lease;
mod monitor;
mod numbers;
mod origin;
mod overview;
mod paging;
mod peer;
mod places;
mod preencoded;
mod process;
mod readiness;
mod ready;
mod request_body;
mod response_body;
mod rpc_metrics;
mod selector;
mod service;
mod settings;
mod socket;
mod status;
mod traffic;
mod users;

pub use accept::{Acceptor, Admission};
pub use access::Policies;
pub use audit_record::record_runs;
pub use clusters::Clusters;
pub use encode::encode;
pub use info::{BrokerInfo, ReloadFailure, ReloadState};
pub use monitor::{Monitor, MonitorListener, MonitorParts, ProviderNames};
pub use peer::Peer;
pub use places::{ConnectionLimits, affordable_runs};
pub use ready::HealthChecks;
pub use service::{BrokerService, Services, services};
pub use socket::{Keeper, Publication, SocketError, SocketOptions, SocketOrigin, publish};
