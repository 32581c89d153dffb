//! What a record has. It never has a secret: names, numbers and reasons only.

use std::{
    fmt::Write as _,
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::{Map, Value};

use credbroker_credential::text::shown;

/// How a request was decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestOutcome {
    /// It was allowed and answered.
    Allowed,
    /// The peer has no right to it.
    Denied,
    /// It was allowed, and failed for another reason.
    Failed,
}

impl RequestOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
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

impl DecisionRecord<'_> {
    /// The record as one line of JSON, with the number of hits that have no record.
    pub(super) fn line(&self, at: SystemTime, hits: u64) -> String {
        let mut fields = object("decision", at);
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        add("listener", Some(self.listener.into()));
        add("uid", Some(self.user.0.into()));
        add("gid", Some(self.user.1.into()));
        add("pid", self.pid.map(Value::from));
        add("executable", self.executable.map(|path| shown(&path.display().to_string()).into()));
        add("call", Some(self.call.into()));
        add("target", self.target.as_deref().map(|target| shown(target).into()));
        add("outcome", Some(self.outcome.name().into()));
        add("reason", self.reason.as_deref().map(Value::from));
        add("generation", self.generation.as_deref().map(Value::from));
        add("duration_ms", self.took.map(milliseconds));
        add("hits_not_recorded", (hits > 0).then(|| hits.into()));
        Value::Object(fields).to_string()
    }

    /// The same as fields of a log line.
    pub(super) fn fields(&self, hits: u64) -> String {
        let mut text = format!("{} {}", self.outcome.name(), self.call);
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _infallible = write!(text, " {name}={value}");
            }
        };
        add("target", self.target.as_deref().map(shown));
        add("reason", self.reason.clone());
        add("listener", Some(self.listener.to_owned()));
        add("uid", Some(self.user.0.to_string()));
        add("gid", Some(self.user.1.to_string()));
        add("pid", self.pid.map(|pid| pid.to_string()));
        add("executable", self.executable.map(|path| shown(&path.display().to_string())));
        add("generation", self.generation.clone());
        add("duration_ms", self.took.map(|took| milliseconds(took).to_string()));
        add("hits_not_recorded", (hits > 0).then(|| hits.to_string()));
        text
    }
}

impl PluginRun<'_> {
    /// The record as one line of JSON.
    pub(super) fn line(&self, at: SystemTime) -> String {
        let mut fields = object("run", at);
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        add("provider", Some(shown(self.provider).into()));
        add("key", Some(self.key.as_str().into()));
        add("cluster_profile", self.cluster_profile.as_deref().map(|name| shown(name).into()));
        add("outcome", Some(if self.result.is_ok() { "issued" } else { "failed" }.into()));
        add("generation", self.result.as_ref().ok().map(|generation| generation.as_str().into()));
        add("reason", self.result.as_ref().err().map(|reason| reason.as_str().into()));
        add("duration_ms", self.took.map(milliseconds));
        Value::Object(fields).to_string()
    }
}

/// Decisions that have no record, because there were too many in one second.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Omitted {
    /// Whose requests they were; `None`: those of several uids.
    pub(super) uid: Option<u32>,
    pub(super) denied: u64,
    pub(super) failed: u64,
    /// Answers from memory.
    pub(super) hits: u64,
}

impl Omitted {
    pub(super) fn is_of_hits(&self) -> bool {
        self.hits > 0
    }

    /// The record as one line of JSON.
    pub(super) fn line(&self, at: SystemTime) -> String {
        let mut fields = object("omitted", at);
        fields.extend(self.counts().map(|(name, count)| (name.to_owned(), count.into())));
        Value::Object(fields).to_string()
    }

    /// The same as fields of a log line.
    pub(super) fn fields(&self) -> String {
        let mut text = "omitted".to_owned();
        for (name, count) in self.counts() {
            let _infallible = write!(text, " {name}={count}");
        }
        text
    }

    fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |name, count: u64| (count > 0).then_some((name, count));
        let counts = [
            self.uid.map(|uid| ("uid", uid.into())),
            count("denials_not_recorded", self.denied),
            count("failures_not_recorded", self.failed),
            count("hits_not_recorded", self.hits),
        ];
        counts.into_iter().flatten()
    }
}

/// The record of lines that could not be written.
pub fn gap(at: SystemTime, lost: u64) -> String {
    let mut fields = object("gap", at);
    fields.insert("records_lost".to_owned(), lost.into());
    Value::Object(fields).to_string()
}

fn object(kind: &str, at: SystemTime) -> Map<String, Value> {
    let time = jiff::Timestamp::try_from(at).map(|time| format!("{time:.3}")).unwrap_or_default();
    Map::from_iter([("time".to_owned(), time.into()), ("kind".to_owned(), kind.into())])
}

fn milliseconds(took: Duration) -> Value {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into()
}
