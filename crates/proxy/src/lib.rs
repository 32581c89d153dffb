//! Forwards requests of Kubernetes clients to API servers, and adds the credential on the way, so that no client holds one.
//!
//! Who calls comes from a listener ([`Caller`]), and where a request goes from its path. Server, authorities, proxy and TLS
//! name of a target come from the broker, never from a request.

mod caller;
mod drain;
mod forward;
mod handle;
pub mod headers;
mod listen;
pub mod path;
#[cfg(test)]
mod property;
pub mod status;
mod target;
mod tls;
mod upgrade;

pub use caller::Caller;
