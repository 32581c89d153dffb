//! Audit records: one for each decision about a request, and one for each plugin run. Nothing waits for them.
//!
//! A record never has a secret: names, numbers and reasons only. The records of one second are limited, and the others
//! are counted.

use std::{
    collections::HashMap,
    fmt, mem,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde_json::{Map, Value};
use tokio::{sync::Notify, time::sleep};
use tracing::{debug, info};

use crate::clock::Clock;
use credbroker_credential::text::shown;

/// How long a budget of records lasts.
const SECOND: Duration = Duration::from_secs(1);
/// The most records of hits in one second.
const HITS: u32 = 100;
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
pub trait AuditSink: Send + Sync + 'static {
    /// Takes a line, without its end. Never waits.
    fn push(&self, line: &str);

    /// Waits until all lines are written, at most for `limit`.
    fn flush(&self, limit: Duration);
}

/// A decision about one request.
#[derive(Clone, Debug)]
pub struct DecisionRecord<'a> {
    /// Name of the listener that accepted the connection.
    pub listener: &'a str,
    /// Effective uid and gid of the peer.
    pub user: (u32, u32),
    /// Process ID of the peer, if it is in the broker's PID namespace.
    pub pid: Option<i32>,
    /// Executable of the peer, if known.
    pub executable: Option<&'a Path>,
    /// The call: a verb, or the path of a method.
    pub call: &'a str,
    /// What the request names: `provider/NAME`, `clusterprofile/NAMESPACE/NAME`, or nothing.
    pub target: Option<String>,
    /// How it was decided.
    pub outcome: RequestOutcome,
    /// The rule that allowed it, or the reason of the error.
    pub reason: Option<String>,
    /// Generation of the credential that was sent.
    pub generation: Option<String>,
    /// From the request to the decision; `None`: it was answered from memory.
    pub took: Option<Duration>,
}

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

/// A plugin run that has ended.
#[derive(Clone, Debug)]
pub struct PluginRun<'a> {
    /// Name of the provider.
    pub provider: &'a str,
    /// Key of the credential.
    pub key: String,
    /// Name of the ClusterProfile that the run was for.
    pub cluster_profile: Option<String>,
    /// Generation of the credential that it issued, or why it failed.
    pub result: Result<String, String>,
    /// From its start to its end; `None`: it did not start.
    pub took: Option<Duration>,
}

impl Audit {
    /// Records decisions in the broker's log, which has a line for each plugin run already.
    pub fn in_log(clock: Arc<dyn Clock>) -> Self {
        Self::to(None, clock)
    }

    /// Records decisions and runs as lines for `sink`.
    pub fn in_lines(sink: impl AuditSink, clock: Arc<dyn Clock>) -> Self {
        Self::to(Some(Box::new(sink)), clock)
    }

    fn to(lines: Option<Box<dyn AuditSink>>, clock: Arc<dyn Clock>) -> Self {
        Self { inner: Some(Arc::new(Recorder { lines, clock, budgets: Budgets::default() })) }
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
        if let Some(Recorder { lines: Some(sink), clock, .. }) = self.inner.as_deref() {
            sink.push(&line("run", clock.now().wall, run.fields()));
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

struct Recorder {
    /// `None`: the broker's log.
    lines: Option<Box<dyn AuditSink>>,
    clock: Arc<dyn Clock>,
    budgets: Budgets,
}

impl Recorder {
    fn decision(&self, decision: &DecisionRecord<'_>, is_hit: bool) {
        let title = format!("{} {}", decision.outcome.name(), decision.call);
        self.record(("decision", &title), decision.fields(self.budgets.hits_not_recorded()), is_hit);
    }

    fn end_second(&self) {
        for omitted in self.budgets.end_second() {
            self.record(("omitted", "omitted"), omitted.fields(), omitted.hits > 0);
        }
    }

    /// Writes a record: a line of its `kind`, or its `title` with its fields in the log.
    fn record(&self, (kind, title): (&str, &str), fields: impl Iterator<Item = Field>, is_hit: bool) {
        match &self.lines {
            Some(sink) => sink.push(&line(kind, self.clock.now().wall, fields)),
            // At the default level the log has nothing for an answer from memory.
            None if is_hit => debug!(target: "credbroker::audit", "{}", text(title, fields)),
            None => info!(target: "credbroker::audit", "{}", text(title, fields)),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

/// A name and a value.
type Field = (&'static str, Value);

/// A record as one line of JSON.
fn line(kind: &str, at: SystemTime, fields: impl Iterator<Item = Field>) -> String {
    let time = jiff::Timestamp::try_from(at).map(|time| format!("{time:.3}")).unwrap_or_default();
    let head: [Field; 2] = [("time", time.into()), ("kind", kind.into())];
    let fields: Map<_, _> =
        head.into_iter().chain(fields).map(|(name, value)| (name.to_owned(), value)).collect();
    Value::Object(fields).to_string()
}

/// The same for the log. The title already has the call and its outcome.
fn text(title: &str, fields: impl Iterator<Item = Field>) -> String {
    let fields = fields.filter(|(name, _)| !matches!(*name, "call" | "outcome"));
    let fields = fields.map(|(name, value)| match value {
        Value::String(text) => format!(" {name}={text}"),
        value => format!(" {name}={value}"),
    });
    [title.to_owned()].into_iter().chain(fields).collect()
}

/// The record of lines that could not be written.
pub fn gap(at: SystemTime, lost: u64) -> String {
    line("gap", at, [("records_lost", lost.into())].into_iter())
}

impl DecisionRecord<'_> {
    /// What the record says, with the number of hits that have no record.
    fn fields(&self, hits: u64) -> impl Iterator<Item = Field> {
        let executable = self.executable.map(|path| shown(&path.display().to_string()));
        let fields = [
            ("call", Some(self.call.into())),
            ("outcome", Some(self.outcome.name().into())),
            ("target", self.target.as_deref().map(|target| shown(target).into())),
            ("reason", self.reason.as_deref().map(Value::from)),
            ("listener", Some(self.listener.into())),
            ("uid", Some(self.user.0.into())),
            ("gid", Some(self.user.1.into())),
            ("pid", self.pid.map(Value::from)),
            ("executable", executable.map(Value::from)),
            ("generation", self.generation.as_deref().map(Value::from)),
            ("duration_ms", self.took.map(milliseconds)),
            ("hits_not_recorded", (hits > 0).then(|| hits.into())),
        ];
        present(fields)
    }
}

impl PluginRun<'_> {
    fn fields(&self) -> impl Iterator<Item = Field> {
        let outcome = if self.result.is_ok() { "issued" } else { "failed" };
        let fields = [
            ("provider", Some(shown(self.provider).into())),
            ("key", Some(self.key.as_str().into())),
            ("cluster_profile", self.cluster_profile.as_deref().map(|name| shown(name).into())),
            ("outcome", Some(outcome.into())),
            ("generation", self.result.as_deref().ok().map(Value::from)),
            ("reason", self.result.as_ref().err().map(|reason| reason.as_str().into())),
            ("duration_ms", self.took.map(milliseconds)),
        ];
        present(fields)
    }
}

fn present<const N: usize>(fields: [(&'static str, Option<Value>); N]) -> impl Iterator<Item = Field> {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

fn milliseconds(took: Duration) -> Value {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into()
}

/// Limits the records of one second, and counts the others. A hit takes no lock.
#[derive(Debug, Default)]
struct Budgets {
    hits: AtomicU32,
    hits_omitted: AtomicU64,
    /// By uid; `None`: all uids without a separate budget.
    refusals: Mutex<HashMap<Option<u32>, Refusals>>,
    /// Signals the first decision of a second.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Refusals {
    recorded: u32,
    omitted: Omitted,
}

/// Decisions that have no record, because there were too many in one second.
#[derive(Debug, Default, Eq, PartialEq)]
struct Omitted {
    /// Whose requests they were; `None`: those of several uids.
    uid: Option<u32>,
    denied: u64,
    failed: u64,
    /// Answers from memory.
    hits: u64,
}

impl Omitted {
    fn fields(&self) -> impl Iterator<Item = Field> {
        let count = |count: u64| (count > 0).then(|| count.into());
        let fields = [
            ("uid", self.uid.map(Value::from)),
            ("denials_not_recorded", count(self.denied)),
            ("failures_not_recorded", count(self.failed)),
            ("hits_not_recorded", count(self.hits)),
        ];
        present(fields)
    }
}

impl Budgets {
    /// Whether this hit gets a record.
    fn take_hit(&self) -> bool {
        let more = |taken: u32| (taken < HITS).then_some(taken + 1);
        let taken = self.hits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match taken {
            Ok(0) => self.begun.notify_one(),
            Ok(_) => {}
            Err(_) => drop(self.hits_omitted.fetch_add(1, Ordering::Relaxed)),
        }
        taken.is_ok()
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
        let key = if refusals.len() < UIDS || refusals.contains_key(&own) { own } else { None };
        let Refusals { recorded, omitted } = refusals.entry(key).or_default();
        if *recorded < REFUSALS {
            *recorded += 1;
            return true;
        }
        *(if outcome == RequestOutcome::Denied { &mut omitted.denied } else { &mut omitted.failed }) += 1;
        false
    }

    /// The number of hits without a record since this was called last.
    fn hits_not_recorded(&self) -> u64 {
        // A look first: most hits have a record, and writing to memory that others read costs more.
        let is_none = self.hits_omitted.load(Ordering::Relaxed) == 0;
        if is_none { 0 } else { self.hits_omitted.swap(0, Ordering::Relaxed) }
    }

    /// Begins a new second, and returns what has no record.
    fn end_second(&self) -> Vec<Omitted> {
        self.hits.store(0, Ordering::Relaxed);
        let hits = Omitted { hits: self.hits_not_recorded(), ..Omitted::default() };
        let refusals = mem::take(&mut *self.refusals.lock().unwrap_or_else(PoisonError::into_inner));
        let refusals = refusals.into_iter().map(|(uid, refusals)| Omitted { uid, ..refusals.omitted });
        refusals.chain([hits]).filter(|omitted| omitted.denied + omitted.failed + omitted.hits > 0).collect()
    }
}

#[cfg(test)]
mod tests;
