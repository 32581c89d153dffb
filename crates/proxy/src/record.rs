//! Records of requests: one for each, and for those that last also one when they begin. Nothing waits for them.
//!
//! A record has names and numbers. It has no value of a query, no body and no credential.

use std::{fmt, sync::Arc, time::Duration};

use credbroker_observe::clock::Clock;
use credbroker_request_info::RequestInfo;

use crate::{caller::Caller, request_body::Progress, status::Refused, target::KnownTarget};

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
    /// Where it went. `None`: the target does not exist, or is not for the caller.
    pub target: Option<Arc<KnownTarget>>,
    /// What it does. `None`: it was refused before that was known.
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
        Self { record, begun: clock.now().boot, progress: None, records, clock }
    }

    pub(crate) fn audit_id(&self) -> &str {
        &self.record.audit_id
    }

    /// It was read, and goes there.
    pub(crate) fn goes_to(&mut self, target: &Arc<KnownTarget>, attributes: &RequestInfo) {
        self.record.target = Some(Arc::clone(target));
        self.record.attributes = Some(Arc::new(attributes.clone()));
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
    }
}
