//! Records of requests: one for each, and for those that last also one when they begin. Nothing waits for them.
//!
//! A record has names and numbers. It has no value of a query, no body and no credential.

use std::{fmt, sync::Arc, time::Duration};

use credbroker_observe::{
    audit::{Audit, Fields, RequestOutcome, milliseconds},
    clock::Clock,
    metrics::Proxied,
};
use credbroker_request_info::RequestInfo;

use crate::{
    caller::Caller,
    path::{Address, TargetName},
    request_body::Progress,
    status::Refused,
    target::KnownTarget,
    usage::Traffic,
};

/// What is known of a request when the record is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Which of the records of a request it is.
    pub phase: Phase,
    /// The name of the request in the audit log of the API server.
    pub audit_id: Arc<str>,
    /// Who sent it.
    pub caller: Arc<Caller>,
    /// Where it was to go. `None`: it was refused before that was known.
    pub asked: Option<Arc<TargetName>>,
    /// Where it went. `None`: the target does not exist, or is not for the caller.
    pub target: Option<Arc<KnownTarget>>,
    /// What it does, without selectors. `None`: it was refused before that was known.
    pub attributes: Option<Arc<RequestInfo>>,
    /// The status of the answer. `None`: the caller went away before there was one.
    pub status: Option<u16>,
    /// Why the proxy itself refused it, or could not forward it.
    pub reason: Option<&'static str>,
    /// The generation of the credential that it was sent with.
    pub generation: Option<String>,
    /// Bytes from the caller, without headers.
    pub up: u64,
    /// Bytes to the caller, without headers.
    pub down: u64,
    /// From the request to this record.
    pub took: Duration,
    /// The protocol that the connection changed to.
    pub upgraded: Option<&'static str>,
    /// The answer ended before its end, for a reason other than a caller that went away.
    pub is_cut: bool,
}

/// Which of the records of a request it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// The only one.
    Whole,
    /// The first of two: the answer has begun.
    Begin,
    /// The second one.
    End,
}

/// Takes records. It does not wait.
pub trait Records: fmt::Debug + Send + Sync + 'static {
    /// Takes one.
    fn push(&self, record: RequestRecord);
}

/// Writes audit records, and counts.
#[derive(Debug)]
pub struct Observed {
    /// Where records go.
    pub audit: Audit,
    /// What is counted.
    pub counts: Arc<Proxied>,
}

impl Records for Observed {
    fn push(&self, record: RequestRecord) {
        if record.phase != Phase::Begin {
            let is_upgraded = record.upgraded.is_some();
            let verb = record.attributes.as_ref().map_or("", |attributes| &*attributes.verb);
            let verb = if is_upgraded { "connect" } else { verb };
            let took = (record.phase == Phase::Whole).then_some(record.took);
            self.counts.ended(verb, record.status.unwrap_or_default(), (record.up, record.down), took);
        }
        // Callers whose uid is not known share a budget.
        let uid = record.caller.principal.uid.unwrap_or(u32::MAX);
        self.audit.request(uid, record.outcome(), record.fields());
    }
}

impl RequestRecord {
    /// As access rules see it: an error of the API server is an answer.
    fn outcome(&self) -> RequestOutcome {
        match (self.reason, self.status) {
            (None, Some(_)) => RequestOutcome::Allowed,
            (Some(_), Some(401 | 403 | 421)) => RequestOutcome::Denied,
            _ => RequestOutcome::Failed,
        }
    }

    /// What a line of the audit file has.
    fn fields(&self) -> Fields {
        let principal = &self.caller.principal;
        let phase = match self.phase {
            Phase::Whole => None,
            Phase::Begin => Some("begin".into()),
            Phase::End => Some("end".into()),
        };
        let asked = || self.asked.as_ref().map(ToString::to_string);
        let target = self.target.as_ref().map(|target| target.in_records()).or_else(asked).map(Into::into);
        let mut fields: Fields = vec![
            ("phase", phase),
            ("audit_id", Some((*self.audit_id).into())),
            ("listener", Some((*principal.listener).into())),
            ("uid", principal.uid.map(Into::into)),
            ("gid", principal.gid.map(Into::into)),
            ("pid", self.caller.pid.map(Into::into)),
            ("target", target),
        ];
        if let Some(attributes) = &self.attributes {
            let text = |text: &str| (!text.is_empty()).then(|| text.into());
            fields.extend([
                ("verb", text(&attributes.verb)),
                ("group", text(&attributes.api_group)),
                ("version", text(&attributes.api_version)),
                ("resource", text(&attributes.resource)),
                ("subresource", text(&attributes.subresource)),
                ("namespace", text(&attributes.namespace)),
                ("name", text(&attributes.name)),
                ("path", text(&attributes.path)),
            ]);
        }
        let is_over = self.phase != Phase::Begin;
        fields.extend([
            ("status", self.status.map(Into::into)),
            ("reason", self.reason.map(Into::into)),
            ("generation", self.generation.as_deref().map(Into::into)),
            ("upgraded", self.upgraded.map(Into::into)),
            ("bytes_up", is_over.then(|| self.up.into())),
            ("bytes_down", is_over.then(|| self.down.into())),
            ("cut", self.is_cut.then_some(true.into())),
            ("duration_ms", Some(milliseconds(self.took))),
        ]);
        fields
    }
}

/// Takes none.
#[derive(Clone, Copy, Debug)]
pub struct NoRecords;

impl Records for NoRecords {
    fn push(&self, _: RequestRecord) {}
}

/// The last record of a request, which is written when this is dropped.
#[derive(Debug)]
pub(crate) struct Pending {
    record: RequestRecord,
    begun: Duration,
    progress: Option<Progress>,
    traffic: Arc<Traffic>,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
}

impl Pending {
    pub(crate) fn new(
        audit_id: Arc<str>,
        caller: &Arc<Caller>,
        records: &Arc<dyn Records>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let record = RequestRecord {
            phase: Phase::Whole,
            audit_id,
            caller: Arc::clone(caller),
            asked: None,
            target: None,
            attributes: None,
            status: None,
            reason: None,
            generation: None,
            up: 0,
            down: 0,
            took: Duration::ZERO,
            upgraded: None,
            is_cut: false,
        };
        let (records, clock) = (Arc::clone(records), Arc::clone(clock));
        let (begun, traffic) = (clock.now().boot, Arc::default());
        Self { record, begun, progress: None, traffic, records, clock }
    }

    pub(crate) fn audit_id(&self) -> &str {
        &self.record.audit_id
    }

    /// It was read.
    pub(crate) fn asks_for(&mut self, address: &Address) {
        self.record.asked = Some(Arc::clone(&address.target));
        // Selectors are values of the query.
        let (field_selector, label_selector) = (String::new(), String::new());
        let attributes = address.attributes().clone();
        self.record.attributes = Some(Arc::new(RequestInfo { field_selector, label_selector, ..attributes }));
    }

    /// Its caller may use the target.
    pub(crate) fn goes_to(&mut self, target: &Arc<KnownTarget>) {
        self.record.target = Some(Arc::clone(target));
    }

    /// It is sent, and counts as `traffic` from now on.
    pub(crate) fn counts_as(&mut self, traffic: &Arc<Traffic>) {
        self.traffic = Arc::clone(traffic);
        traffic.begin();
    }

    /// Where the bytes of its tunnel count.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Its body is being read.
    pub(crate) fn reads(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    pub(crate) fn refused(&mut self, refused: &Refused) {
        self.record.status = Some(refused.code.as_u16());
        self.record.reason = Some(refused.reason);
    }

    pub(crate) fn answered(&mut self, status: u16, generation: Option<&str>) {
        self.record.status = Some(status);
        self.record.generation = generation.map(str::to_owned);
    }

    /// It lasts: there is a record now, and another one at its end.
    pub(crate) fn begin(&mut self) {
        self.record.phase = Phase::Begin;
        self.push();
        self.record.phase = Phase::End;
    }

    pub(crate) fn upgraded(&mut self, protocol: &'static str) {
        self.record.upgraded = Some(protocol);
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.record.down += bytes as u64;
        self.traffic.down(bytes as u64);
    }

    /// The bytes of a tunnel.
    pub(crate) fn carried(&mut self, up: u64, down: u64) {
        (self.record.up, self.record.down) = (up, down);
        // The request itself had no body.
        self.progress = None;
    }

    pub(crate) fn cut(&mut self) {
        self.record.is_cut = true;
    }

    fn push(&mut self) {
        if let Some(progress) = &self.progress {
            self.record.up = progress.received();
        }
        self.record.took = self.clock.now().boot.saturating_sub(self.begun);
        self.records.push(self.record.clone());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.push();
        if let Some(progress) = &self.progress {
            self.traffic.up(progress.received());
            progress.end();
        }
    }
}
