//! Forwards requests of Kubernetes clients to API servers, and adds the credential on the way, so that no client holds one.
//!
//! Who calls comes from a listener ([`Caller`]), and where a request goes from its path. Server, authorities, proxy and TLS
//! name of a target come from the broker, never from a request.

mod answer;
mod boundary;
mod caller;
mod drain;
mod exchange;
mod failure;
mod forward;
mod handle;
pub mod headers;
mod keys;
mod listen;
mod owner;
pub mod path;
mod policy;
#[cfg(test)]
mod property;
mod record;
mod request_body;
mod rights;
mod send;
pub mod status;
mod target;
mod tls;
mod upgrade;
mod usage;

pub use answer::AnswerBody;
pub use caller::Caller;
pub use exchange::Limits;
pub use forward::{Options, Proxy, Times};
pub use keys::{AUTHORITY, HANDLES, Keys, KeysError};
pub use listen::{Identify, ListenerParts, Listeners, Port, PortOptions, Serve};
pub use policy::{PolicyRights, UserOf};
pub use record::{NoRecords, Observed, Phase, Records, RequestRecord};
pub use rights::Rights;
pub use target::KnownTarget;
pub use tls::AuthorityError;
pub use usage::{TargetUse, Usage};
