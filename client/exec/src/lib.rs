//! `credbroker-exec`, the shim: an exec credential plugin that asks the broker instead of knowing any cloud.
//!
//! [`run`] is the whole program. Its steps are here by themselves too, for commands that ask the same question and say
//! the answer in another way: [`request()`] builds the question, [`document()`] the `ExecCredential`, [`Failure`] knows
//! exit codes and remedies. They are pure; [`Edges`] is where the process begins.
//!
//! It starts with every API client that starts, so it does as little as it can: one thread without a runtime, one
//! connection, one write, and as few system calls and touched pages as that takes.

mod arguments;
mod caller;
mod document;
mod duration;
mod edges;
mod exec_info;
mod exit_code;
mod expiry;
mod failure;
mod forward;
mod request;
mod run;

pub use arguments::UsageError;
pub use caller::Parent;
pub use document::{ApiVersion, document};
pub use duration::duration;
pub use edges::{Edges, Environment};
pub use exec_info::ExecInfoError;
pub use exit_code::exit_code;
pub use failure::Failure;
pub use forward::ForwardError;
pub use request::{request, socket};
pub use run::{ask_patiently, run};
