//! What a cache is made of.

use std::{fmt, sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{CacheError, EntryLimits, suspicion::VerifyFn};
use credbroker_credential::{EncodeFn, Issued};
use credbroker_observe::{clock::Clock, metrics::Metrics};
use credbroker_plugin::PluginSpec;
use credbroker_runner::Scheduler;

/// Called at the end of each run that started, with what it issued or why it failed, and how long it took. `None`: it was
/// ended because it was not needed.
pub type RunEndFn = Arc<dyn Fn(&PluginSpec, Result<&Issued, Option<&CacheError>>, Duration) + Send + Sync>;

/// The parts of a cache.
pub struct CacheParts<R> {
    /// Runs plugins.
    pub runner: R,
    /// Decides when they run.
    pub scheduler: Scheduler,
    /// Encodes a credential once, when it arrives.
    pub encode: EncodeFn,
    /// Asks API servers about credentials that seem to be rejected.
    pub verify: VerifyFn,
    /// Counts requests and runs.
    pub metrics: Arc<Metrics>,
    /// Called at the end of each run.
    pub on_run: RunEndFn,
    /// Reads the time.
    pub clock: Arc<dyn Clock>,
    /// Uniform in [0, 1): spreads refreshes and retries.
    pub jitter: fn() -> f64,
    /// Identifies this start of the broker in every generation.
    pub epoch: Arc<str>,
    /// How many keys there may be, until [`CredentialCache::set_limits`](super::CredentialCache::set_limits).
    pub entries: EntryLimits,
    /// Owns the runs.
    pub tasks: TaskTracker,
    /// When cancelled, no more runs start and the current ones are ended.
    pub draining: CancellationToken,
}

impl<R> fmt::Debug for CacheParts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheParts").field("entries", &self.entries).finish_non_exhaustive()
    }
}
