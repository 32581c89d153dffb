//! The only place that wires: production and tests build the broker here.

mod audit_file;
mod build;
mod edges;
mod linux;
mod logs;
mod proxy;
mod queue;
mod reload;
mod sockets;
mod systemd;

pub use build::{Bound, Daemon, Drained, GRACE, build};
pub use edges::{Edges, RelayedSignals, Signals, environment};
pub use linux::{harden, terminate};
pub use logs::{LogFormat, LogQueue, start as start_logs};
pub use proxy::{BoundProxy, PROXY_SOCKET, ProxyOptions, build_proxy};
pub use reload::ConfigPlace;
pub use sockets::{Listening, SocketSource, socket_options};
pub use systemd::{Inherited, ServiceManager, inherited_listeners, notify};

pub use credbroker_observe::trace::start as start_traces;
pub use sd_notify::NotifyState;
