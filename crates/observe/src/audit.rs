//! Audit records: one for each decision about a request, and one for each plugin run. Nothing waits for them.
//!
//! A record has names, numbers and reasons, and never a secret. The records of one second are limited; the others are counted.

use std::{
    collections::HashMap,
    fmt::Debug,
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde_json::{Map, Value};
use tokio::{sync::Notify, time::sleep};
use tracing::{debug, info};

use crate::clock::Clock;

/// How long a budget of records lasts.
const SECOND: Duration = Duration::from_secs(1);
/// The most records of hits in one second.
const HITS: u64 = 100;
/// The most records in one second of requests of one uid that were denied or failed.
const REFUSALS: u32 = 20;
/// The uids with a separate budget. A peer that makes up more of them, for example in a user namespace, shares one
/// budget with the rest.
const UIDS: usize = 256;

/// Takes audit records. Clones share the destination.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// `None`: nothing is recorded.
    inner: Option<Arc<Recorder>>,
}

/// Takes records as lines, each a JSON object.
pub trait AuditSink: Debug + Send + Sync + 'static {
    /// Takes a line, without its end. Never waits.
    fn push(&self, line: &str);

    /// Waits until all lines are written, at most for `limit`.
    fn flush(&self, limit: Duration);
}

/// What a record says: names, and values that are in it if they are present.
pub type Fields = Vec<(&'static str, Option<Value>)>;

named! {
    /// How a request was decided.
    RequestOutcome {
        /// It was allowed and answered.
        Allowed = "allowed",
        /// The peer has no right to it.
        Denied = "denied",
        /// It was allowed, and failed for another reason.
        Failed = "failed",
    }
}

impl Audit {
    /// Records decisions and runs as lines for `lines`; `None`: decisions in the broker's log, which has a line for each
    /// plugin run already.
    pub fn new(lines: Option<Box<dyn AuditSink>>, clock: Arc<dyn Clock>) -> Self {
        Self { inner: Some(Arc::new(Recorder { lines, clock, budgets: Budgets::default() })) }
    }

    /// The time since boot, to measure a duration from. `None`: nothing is recorded.
    pub fn begin(&self) -> Option<Duration> {
        self.inner.as_ref().map(|inner| inner.clock.now().boot)
    }

    /// Records the decision about a `call` (a verb, or the path of a method) of the effective uid `uid`, which took from
    /// `begun` until now, and what `more` is known about it. Of the requests of one uid that are denied or fail in one
    /// second, only the first ones have a record, and the others are counted.
    pub fn decision(
        &self,
        begun: Option<Duration>,
        uid: u32,
        (call, outcome): (&str, RequestOutcome),
        more: Fields,
    ) {
        if let (Some(inner), Some(begun)) = (&self.inner, begun)
            && inner.budgets.take(uid, outcome)
        {
            let took = inner.clock.now().boot.saturating_sub(begun);
            inner.decision((call, outcome), more, Some(took));
        }
    }

    /// Records an answer from memory, unless there were too many in this second: then another record has their number.
    /// Makes `more` only if there is room for the record.
    pub fn hit(&self, call: &str, more: impl FnOnce() -> Fields) {
        if let Some(inner) = &self.inner
            && inner.budgets.take_hit()
        {
            inner.decision((call, RequestOutcome::Allowed), more(), None);
        }
    }

    /// Records a request that the proxy has forwarded, or begins to forward, or refused. Of those of one uid that are
    /// refused or fail in one second, only the first ones have a record, and the others are counted.
    pub fn request(&self, uid: u32, outcome: RequestOutcome, fields: Fields) {
        if let Some(inner) = &self.inner
            && inner.budgets.take(uid, outcome)
        {
            let title = format!("{} request", outcome.name());
            let head = [("outcome", Some(outcome.name().into()))];
            inner.record(("request", &title), head.into_iter().chain(fields).collect(), false);
        }
    }

    /// Records a plugin run that has ended.
    pub fn run(&self, fields: Fields) {
        if let Some(Recorder { lines: Some(sink), clock, .. }) = self.inner.as_deref() {
            sink.push(&line("run", clock.now().wall, fields));
        }
    }

    /// Records each second the number of decisions that have no record. Never returns.
    pub async fn count_omitted(&self) {
        let Some(inner) = &self.inner else { return std::future::pending().await };
        loop {
            inner.budgets.begun.notified().await;
            sleep(SECOND).await;
            inner.end_second();
        }
    }

    /// Waits until all records are written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        if let Some(inner) = &self.inner {
            inner.end_second();
            inner.lines.iter().for_each(|sink| sink.flush(limit));
        }
    }
}

#[derive(Debug)]
struct Recorder {
    /// `None`: the broker's log.
    lines: Option<Box<dyn AuditSink>>,
    clock: Arc<dyn Clock>,
    budgets: Budgets,
}

impl Recorder {
    /// Records a decision that `took` so long; `None`: it was a hit.
    fn decision(&self, (call, outcome): (&str, RequestOutcome), more: Fields, took: Option<Duration>) {
        let (title, hits) = (format!("{} {call}", outcome.name()), self.budgets.hits_not_recorded());
        let mut fields = vec![("call", Some(call.into())), ("outcome", Some(outcome.name().into()))];
        fields.extend(more);
        fields.extend([("duration_ms", took.map(milliseconds)), ("hits_not_recorded", count(hits))]);
        self.record(("decision", &title), fields, took.is_none());
    }

    fn end_second(&self) {
        for omitted in self.budgets.end_second() {
            self.record(("omitted", "omitted"), omitted.fields(), omitted.hits > 0);
        }
    }

    /// Writes a record: a line of its `kind`, or its `title` with its fields in the log.
    fn record(&self, (kind, title): (&str, &str), fields: Fields, is_hit: bool) {
        match &self.lines {
            Some(sink) => sink.push(&line(kind, self.clock.now().wall, fields)),
            // At the default level the log has nothing for an answer from memory.
            None if is_hit => debug!(target: "credbroker::audit", "{}", text(title, fields)),
            None => info!(target: "credbroker::audit", "{}", text(title, fields)),
        }
    }
}

/// A record as one line of JSON.
fn line(kind: &str, at: SystemTime, fields: Fields) -> String {
    let time = jiff::Timestamp::try_from(at).map(|time| format!("{time:.3}")).unwrap_or_default();
    let head = [("time", Some(time.into())), ("kind", Some(kind.into()))];
    let fields = head.into_iter().chain(fields);
    let fields: Map<_, _> = fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Value::Object(fields).to_string()
}

/// The same for the log. The title already has the call and its outcome.
fn text(title: &str, fields: Fields) -> String {
    let fields = fields.into_iter().filter(|(name, _)| !matches!(*name, "call" | "outcome"));
    let fields = fields.filter_map(|(name, value)| match value? {
        Value::String(text) => Some(format!(" {name}={text}")),
        value => Some(format!(" {name}={value}")),
    });
    [title.to_owned()].into_iter().chain(fields).collect()
}

/// The record of lines that could not be written.
pub fn gap(at: SystemTime, lost: u64) -> String {
    line("gap", at, vec![("records_lost", Some(lost.into()))])
}

/// A duration as records have it.
pub fn milliseconds(took: Duration) -> Value {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into()
}

fn count(count: u64) -> Option<Value> {
    (count > 0).then(|| count.into())
}

/// Limits the records of one second, and counts the others. A hit takes no lock.
#[derive(Debug, Default)]
struct Budgets {
    /// Hits of this second. Those over the limit have no record, and are taken away when another record counts them.
    hits: AtomicU64,
    /// By uid; `None`: all uids without a separate budget.
    refusals: Mutex<HashMap<Option<u32>, Omitted>>,
    /// Signals the first decision of a second.
    begun: Notify,
}

/// Decisions that have no record, because there were too many in one second.
#[derive(Debug, Default, Eq, PartialEq)]
struct Omitted {
    /// Whose requests they were; `None`: those of several uids.
    uid: Option<u32>,
    /// The refusals before them, which have a record.
    recorded: u32,
    denied: u64,
    failed: u64,
    hits: u64,
}

impl Omitted {
    fn fields(&self) -> Fields {
        vec![
            ("uid", self.uid.map(Value::from)),
            ("denials_not_recorded", count(self.denied)),
            ("failures_not_recorded", count(self.failed)),
            ("hits_not_recorded", count(self.hits)),
        ]
    }
}

impl Budgets {
    /// Whether this hit gets a record.
    fn take_hit(&self) -> bool {
        let before = self.hits.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.begun.notify_one();
        }
        before < HITS
    }

    /// Whether a request of `uid` with this outcome gets a record.
    fn take(&self, uid: u32, outcome: RequestOutcome) -> bool {
        if outcome == RequestOutcome::Allowed {
            return true;
        }
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.is_empty() {
            self.begun.notify_one();
        }
        let own = Some(uid);
        let uid = if refusals.len() < UIDS || refusals.contains_key(&own) { own } else { None };
        let omitted = refusals.entry(uid).or_insert_with(|| Omitted { uid, ..Omitted::default() });
        if omitted.recorded < REFUSALS {
            omitted.recorded += 1;
            return true;
        }
        *(if outcome == RequestOutcome::Denied { &mut omitted.denied } else { &mut omitted.failed }) += 1;
        false
    }

    /// The number of hits without a record since this was called last.
    fn hits_not_recorded(&self) -> u64 {
        // A look first: most hits have a record, and writing to memory that others read costs more.
        let is_none = self.hits.load(Ordering::Relaxed) <= HITS;
        if is_none { 0 } else { self.hits.fetch_min(HITS, Ordering::Relaxed).saturating_sub(HITS) }
    }

    /// Begins a new second, and returns what has no record.
    fn end_second(&self) -> Vec<Omitted> {
        let hits = self.hits.swap(0, Ordering::Relaxed).saturating_sub(HITS);
        let refusals = mem::take(&mut *self.refusals.lock().unwrap_or_else(PoisonError::into_inner));
        let all = refusals.into_values().chain([Omitted { hits, ..Omitted::default() }]);
        all.filter(|omitted| omitted.denied + omitted.failed + omitted.hits > 0).collect()
    }
}

#[cfg(test)]
mod tests;
