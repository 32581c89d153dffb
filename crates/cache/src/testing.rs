//! A cache for tests.

use std::sync::Arc;

use credbroker_credential::testing::plain;
use credbroker_observe::clock::Clock;
use credbroker_runner::Scheduler;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{CacheParts, EntryLimits, Verdict};

impl EntryLimits {
    /// So many entries of any size.
    pub fn for_tests(entries: usize) -> Self {
        Self { entries, bytes: 1 << 30 }
    }
}

impl<R> CacheParts<R> {
    /// Parts without an API server, and with the epoch `test`.
    pub fn for_tests(
        runner: impl Into<Arc<R>>,
        clock: Arc<dyn Clock>,
        tasks: &TaskTracker,
        draining: &CancellationToken,
    ) -> Self {
        let scheduler = Scheduler::new(10_000, Arc::clone(&clock), || 0.5);
        scheduler.set_interactive(10_000);
        Self {
            runner: runner.into(),
            scheduler,
            encode: plain,
            verify: Arc::new(|_, _| Box::pin(std::future::ready(Verdict::Unverifiable))),
            metrics: Arc::default(),
            on_run: Arc::new(|_, _, _| {}),
            clock,
            jitter: || 0.5,
            epoch: "test".into(),
            entries: EntryLimits::for_tests(1000),
            tasks: tasks.clone(),
            draining: draining.clone(),
        }
    }
}
