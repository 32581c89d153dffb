//! `credbroker-exec`, the shim: an exec credential plugin that requests its credential from the broker.
//!
//! [`run`] is the whole program. Its steps are public, for other commands that request a credential: [`request()`] builds
//! the request, [`document()`] the `ExecCredential`, and [`Failure`] has the exit codes and remedies. They are pure;
//! [`Edges`] has all access to the process.
//!
//! With `--proxy` it requests a handle of the proxy instead, and `credbroker-exec bridge` connects a network of its own with a
//! socket of the proxy.
//!
//! API clients start it each time that they need a credential, so its run time counts: one thread without a runtime, one
//! connection, one write, and few system calls and memory pages.

mod arguments;
mod bridge;
mod caller;
mod document;
mod edges;
mod exec_info;
mod exit_code;
mod expiry;
mod failure;
mod fallback;
mod forward;
mod notice;
mod on_demand;
mod originals;
mod proxy;
mod request;
mod run;
mod running;
mod source;
mod sudo;
mod timeout;

pub use arguments::{UsageError, requested};
pub use bridge::BridgeError;
pub use caller::Parent;
pub use credbroker_client::blocking::Notice;
pub use document::{ApiVersion, document};
pub use edges::{Edges, Environment};
pub use exec_info::ExecInfoError;
pub use exit_code::exit_code;
pub use failure::Failure;
pub use fallback::FallbackError;
pub use forward::{ForwardError, with_variables};
pub use notice::with_notice;
pub use on_demand::{OnDemand, OnDemandError, Starter};
pub use originals::{original_line, original_of, originals};
pub use proxy::ProxyError;
pub use request::{request, socket};
pub use run::{find_or_start, log_in_patiently, request_patiently, run};
pub use running::running;
pub use source::Source;
pub use timeout::timeout;
