//! Audit records: one for each decision about a request, and one for each plugin run. Nothing waits for them.

mod budget;
mod file;
mod record;

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

use tokio::time::sleep;
use tracing::{debug, info};

use self::{budget::Budgets, file::AuditFile};
use crate::clock::Clock;

pub use record::{DecisionRecord, PluginRun, RequestOutcome};

/// How long a budget of records lasts.
const SECOND: Duration = Duration::from_secs(1);

/// Takes audit records. Clones share the destination.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// `None`: nothing is recorded.
    inner: Option<Arc<AuditSink>>,
}

struct AuditSink {
    destination: Destination,
    clock: Arc<dyn Clock>,
    budgets: Budgets,
}

enum Destination {
    /// The broker's own log, which has a line for each plugin run already.
    Log,
    File(AuditFile),
}

impl Audit {
    /// Records decisions in the broker's log.
    pub fn in_log(clock: Arc<dyn Clock>) -> Self {
        Self::to(Destination::Log, clock)
    }

    /// Records decisions and runs in the file at `path`, one JSON object in each line. If another program moves the file,
    /// the next record begins a new one.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is not a regular file.
    pub fn in_file(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Ok(Self::to(Destination::File(AuditFile::start(path, Arc::clone(&clock))?), clock))
    }

    fn to(destination: Destination, clock: Arc<dyn Clock>) -> Self {
        Self { inner: Some(Arc::new(AuditSink { destination, clock, budgets: Budgets::default() })) }
    }

    /// The time since boot, to measure a duration from. `None`: nothing is recorded.
    pub fn begin(&self) -> Option<Duration> {
        self.inner.as_ref().map(|inner| inner.clock.now().boot)
    }

    /// Records a decision that took from `begun` until now. Of the requests of one uid that are denied or fail in one
    /// second, only the first ones have a record, and the others are counted.
    pub fn decision(&self, begun: Option<Duration>, decision: DecisionRecord<'_>) {
        if let (Some(inner), Some(begun)) = (&self.inner, begun)
            && inner.budgets.take(decision.user.0, decision.outcome)
        {
            let took = inner.clock.now().boot.saturating_sub(begun);
            inner.decision(&DecisionRecord { took: Some(took), ..decision }, false);
        }
    }

    /// Records an answer from memory, unless there were too many in this second: then another record has their number.
    /// Makes the record only if there is room for it.
    pub fn hit<'a>(&self, decision: impl FnOnce() -> DecisionRecord<'a>) {
        if let Some(inner) = &self.inner
            && inner.budgets.take_hit()
        {
            inner.decision(&decision(), true);
        }
    }

    /// Records a plugin run.
    pub fn run(&self, run: &PluginRun<'_>) {
        if let Some(AuditSink { destination: Destination::File(file), clock, .. }) = self.inner.as_deref() {
            file.push(&run.line(clock.now().wall));
        }
    }

    /// Resolves when the thread that writes the file has ended, which happens only if it panics.
    pub async fn ended(&self) {
        match self.inner.as_deref() {
            Some(AuditSink { destination: Destination::File(file), .. }) => file.ended().await,
            _ => std::future::pending().await,
        }
    }

    /// Records each second the number of decisions that have no record. Never returns.
    pub async fn count_omitted(&self) {
        let Some(inner) = &self.inner else { return std::future::pending().await };
        loop {
            inner.budgets.begun().await;
            sleep(SECOND).await;
            inner.end_second();
        }
    }

    /// Waits until all records are written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        if let Some(inner) = &self.inner {
            inner.end_second();
        }
        if let Some(AuditSink { destination: Destination::File(file), .. }) = self.inner.as_deref() {
            file.flush(limit);
        }
    }
}

impl AuditSink {
    fn decision(&self, decision: &DecisionRecord<'_>, is_hit: bool) {
        let hits = self.budgets.hits_not_recorded();
        match &self.destination {
            Destination::File(file) => file.push(&decision.line(self.clock.now().wall, hits)),
            // At the default level the log has nothing for an answer from memory.
            Destination::Log if is_hit => debug!(target: "credbroker::audit", "{}", decision.fields(hits)),
            Destination::Log => info!(target: "credbroker::audit", "{}", decision.fields(hits)),
        }
    }

    fn end_second(&self) {
        for omitted in self.budgets.end_second() {
            match &self.destination {
                Destination::File(file) => file.push(&omitted.line(self.clock.now().wall)),
                Destination::Log if omitted.is_of_hits() => {
                    debug!(target: "credbroker::audit", "{}", omitted.fields());
                }
                Destination::Log => info!(target: "credbroker::audit", "{}", omitted.fields()),
            }
        }
    }
}

impl fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

#[cfg(test)]
mod tests;
