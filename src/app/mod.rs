//! The only place that wires: production and tests build the broker here.

mod audit_file;
mod bound;
mod build;
mod drain;
mod edges;
mod essential;
mod health;
mod journal;
mod limits;
mod linux;
mod listening;
mod logs;
mod monitor;
mod queue;
mod reload;
mod signals;
mod systemd;
mod watchdog;

pub use bound::Bound;
pub use build::{BuildError, build};
pub use drain::{Drained, GRACE};
pub use edges::{Edges, environment};
pub use linux::harden;
pub use listening::{Listening, SocketSource, socket_options};
pub use logs::{FilterProblem, LogFormat, LogOptions, LogQueue, start as start_logs};
pub use reload::{ConfigPlace, ReloadRequest};
pub use signals::Signals;
pub use systemd::{ServiceManager, ServiceNotification, inherited_listeners};

pub use credbroker_observe::trace::start as start_traces;
