//! Audit records: one for each decision about a request, and one for each plugin run. Nothing waits for them.

mod budget;
mod record;

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::sleep;
use tracing::{debug, info};

use self::budget::Budgets;
use crate::clock::Clock;

pub use record::{DecisionRecord, PluginRun, RequestOutcome, gap};

/// How long a budget of records lasts.
const SECOND: Duration = Duration::from_secs(1);

/// Takes audit records. Clones share the destination.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// `None`: nothing is recorded.
    inner: Option<Arc<Recorder>>,
}

/// Takes records as lines, each a JSON object.
pub trait AuditSink: Send + Sync + 'static {
    /// Takes a line, without its end. Never waits.
    fn push(&self, line: &str);

    /// Waits until all lines are written, at most for `limit`.
    fn flush(&self, limit: Duration);
}

struct Recorder {
    destination: Destination,
    clock: Arc<dyn Clock>,
    budgets: Budgets,
}

enum Destination {
    /// The broker's own log, which has a line for each plugin run already.
    Log,
    Lines(Box<dyn AuditSink>),
}

impl Audit {
    /// Records decisions in the broker's log.
    pub fn in_log(clock: Arc<dyn Clock>) -> Self {
        Self::to(Destination::Log, clock)
    }

    /// Records decisions and runs as lines for `sink`.
    pub fn in_lines(sink: impl AuditSink, clock: Arc<dyn Clock>) -> Self {
        Self::to(Destination::Lines(Box::new(sink)), clock)
    }

    fn to(destination: Destination, clock: Arc<dyn Clock>) -> Self {
        Self { inner: Some(Arc::new(Recorder { destination, clock, budgets: Budgets::default() })) }
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
        if let Some(Recorder { destination: Destination::Lines(sink), clock, .. }) = self.inner.as_deref() {
            sink.push(&run.line(clock.now().wall));
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
        if let Some(Recorder { destination: Destination::Lines(sink), .. }) = self.inner.as_deref() {
            sink.flush(limit);
        }
    }
}

impl Recorder {
    fn decision(&self, decision: &DecisionRecord<'_>, is_hit: bool) {
        let hits = self.budgets.hits_not_recorded();
        match &self.destination {
            Destination::Lines(sink) => sink.push(&decision.line(self.clock.now().wall, hits)),
            // At the default level the log has nothing for an answer from memory.
            Destination::Log if is_hit => debug!(target: "credbroker::audit", "{}", decision.fields(hits)),
            Destination::Log => info!(target: "credbroker::audit", "{}", decision.fields(hits)),
        }
    }

    fn end_second(&self) {
        for omitted in self.budgets.end_second() {
            match &self.destination {
                Destination::Lines(sink) => sink.push(&omitted.line(self.clock.now().wall)),
                Destination::Log if omitted.is_of_hits() => {
                    debug!(target: "credbroker::audit", "{}", omitted.fields());
                }
                Destination::Log => info!(target: "credbroker::audit", "{}", omitted.fields()),
            }
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

#[cfg(test)]
mod tests;
