//! The only place that wires: production and tests build the broker here.

mod audit_file;
mod bound;
mod build;
mod drain;
mod edges;
mod essential;
mod filter;
mod hardening;
mod health;
mod journal;
mod limits;
mod listening;
mod logs;
mod monitor;
mod reload;
mod signals;
mod systemd;
mod telemetry;
mod watchdog;

pub use bound::Bound;
pub use build::{BuildError, build};
pub use drain::{Drained, GRACE};
pub use edges::{Edges, environment};
pub use filter::FilterProblem;
pub use hardening::harden;
pub use listening::{Listening, SocketSource, socket_options};
pub use logs::LogQueue;
pub use reload::{ConfigPlace, ReloadRequest};
pub use signals::Signals;
pub use systemd::{ServiceManager, ServiceNotification, inherited_listeners};
pub use telemetry::{LogFormat, LogOptions, start as start_telemetry};

pub use credbroker_observe::trace::start as start_traces;
