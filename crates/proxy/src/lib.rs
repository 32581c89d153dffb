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
mod listen;
pub mod path;
mod record;
mod request_body;
mod rights;
pub mod status;
mod target;
mod tls;
mod upgrade;

pub use answer::AnswerBody;
pub use caller::Caller;
pub use exchange::Limits;
pub use forward::{Options, Proxy, Times};
pub use record::{NoRecords, Observed, Phase, Records, RequestRecord};
pub use rights::Rights;
pub use target::KnownTarget;
