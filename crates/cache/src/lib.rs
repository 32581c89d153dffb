//! The credentials in memory: one entry per key, at most one run at a time for each, refreshed ahead of expiry.
//!
//! [`CredentialCache`] is all of it: `lookup`, `get` and `watch` serve callers, `report` hears of rejected credentials,
//! `refresh`, `evict` and the `forget` methods are for operators and reloads, `list` and `summaries` show the state, and
//! `keep_fresh` is the task that refreshes credentials ahead of expiry. [`CacheParts`] is what it needs: a
//! [`PluginRunner`](credbroker_runner::PluginRunner), the scheduler of runs, and how to encode a credential.

mod cache;
mod claim;
mod entries;
mod entry;
mod error;
mod get;
mod lasting;
mod maintenance;
mod prompts;
mod rejection;
mod report;
mod request;
mod run;
mod state;
mod status;
#[cfg(any(test, feature = "test-util"))]
mod testing;
#[cfg(test)]
mod tests;

pub use cache::{CacheParts, CredentialCache, RunEndFn};
pub use entries::{EntryLimits, ListPosition};
pub use error::{CacheError, Failed, Full};
pub use get::CredentialWatch;
pub use prompts::Unattended;
pub use rejection::{Caller, RejectionStatus, Verdict, VerifyFn};
pub use report::{ReportOutcome, Reported};
pub use request::{Attendant, AttendantReader, InvalidKey, KeyPrefix, Request, Selector};
pub use status::{Holding, KeyStatus, ProviderSummary, RunCause};
