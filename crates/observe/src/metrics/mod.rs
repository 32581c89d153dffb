//! What the broker counts. Every count is kept where the event happens, and read at each scrape.
//!
//! Counting never waits: a request that is answered from memory adds to three atomic numbers, all others also take a lock
//! for the time of one addition. The writer of the text format is our own, because the values of half of the metrics are
//! read from the cache at each scrape, and the library for the format (`prometheus-client`) writes `OpenMetrics` only.

mod calls;
mod counter;
mod exposition;
pub mod families;
mod providers;
mod requests;
mod rpc;
mod run;
mod sparse;

use std::sync::Arc;

pub use calls::{CallStatus, Calls};
pub use counter::{Counter, Histogram, Observed};
pub use exposition::Exposition;
pub use families::{FAMILIES, Family, MetricKind};
pub use providers::{ProviderMetrics, ProviderTable};
pub use requests::Requests;
pub use rpc::Rpc;
pub use run::{RunOutcome, RunReason};
pub use sparse::Sparse;

/// All counts of one broker, by component.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The plugin runs as client-go counts them.
    pub calls: Calls,
    /// Credentials and runs of each provider.
    pub providers: ProviderTable,
    /// Requests, by RPC and result.
    pub requests: Requests,
    /// Changes of the configuration that were applied.
    pub reloads: Counter,
    /// Changes of the configuration that were refused, because the new one is not valid.
    pub failed_reloads: Counter,
    /// Warnings about plugins that are not installed, by provider.
    pub missing: Sparse<Arc<str>>,
    /// Warnings about denied requests, by uid and reason.
    pub denied: Sparse<(u32, &'static str)>,
}
