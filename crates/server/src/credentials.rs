//! The calls that answer with a credential: `GetCredential`, `WatchCredential` and `ReportRejected`.
//!
//! The answers were encoded once, when the credential arrived.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use futures_util::future::BoxFuture;
use http::Extensions;
use prost::Message as _;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, debug_span};

use super::{
    access::Access,
    audit_record::{self, Asked},
    convert::{self, deadline, wait_within},
    follow::{CredentialStream, watch_slot},
    preencoded::{self, MessageStream, Preencoded},
    service::BrokerService,
    status::{self, Subject},
};
use credbroker_cache as cache;
use credbroker_cache::{Caller, Failed, Lookup, ReportOutcome, Reported};
use credbroker_credential::Issued;
use credbroker_fleet::resolver::CredentialRequest;
use credbroker_observe::trace;
use credbroker_plugin::{PluginSpec, access::Verb, verifiable_at};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::Peer;

/// The path of `GetCredential`.
pub(super) const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";

/// Answers `GetCredential`: from memory, or later from where the look-up left off.
pub(super) trait Gets: Send + Sync {
    /// The framed answer to `message`, an encoded request, from memory. Never waits. `None`: memory has none, and the
    /// [`Get`] is in `learned` if the request is valid. If not, the service reads it, and reports the error.
    fn recall(&self, access: &Access, message: Bytes, learned: &mut Extensions) -> Option<Bytes>;

    /// The framed answer to a request that memory did not answer.
    fn get<'a>(
        &'a self,
        access: &'a Arc<Access>,
        get: Get,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Bytes, Status>>;
}

/// A `GetCredential`: who asks for what.
#[derive(Clone, Debug)]
pub(super) struct Get {
    caller: Caller,
    ask: CredentialRequest,
    /// Counts only if memory has no answer: where the caller runs takes longer to read than the rest of a call.
    session: BTreeMap<String, String>,
}

impl Get {
    /// Takes the request by value, so that the caller's name is freed before a wait.
    pub(super) fn of(request: pb::GetCredentialRequest, access: &Access) -> Result<Self, Status> {
        let pb::GetCredentialRequest { r#ref, exec_plugin_caller, at_terminal, session } = request;
        let pb::ExecPluginCaller { id, without_exec_info } = exec_plugin_caller.unwrap_or_default();
        let caller = Caller { without_exec_info, at_terminal, ..named(&access.peer, &id) };
        let session = if at_terminal { session } else { BTreeMap::new() };
        Ok(Self { caller, ask: convert::ask(r#ref, access, Verb::Get)?, session })
    }
}

impl<R: PluginRunner> Gets for BrokerService<R> {
    fn recall(&self, access: &Access, message: Bytes, learned: &mut Extensions) -> Option<Bytes> {
        let get = Get::of(pb::GetCredentialRequest::decode(message).ok()?, access).ok()?;
        let key = self.resolver.key(&get.ask).ok().filter(|_| access.is_current(&get.ask.permit));
        let found = key.map_or(Lookup::Undecided, |key| self.cache.lookup(&key, &get.caller));
        let Lookup::Served(issued) = found else {
            learned.insert(get);
            return None;
        };
        self.audit.hit(|| audit_record::hit(access, &get.ask.source, issued.generation.to_string()));
        if trace::is_recording() {
            // The key alone does not say which provider it is.
            self.resolver.resolve(get.ask).iter().for_each(trace::names);
        }
        Some(issued.encoded.frame.clone())
    }

    fn get<'a>(
        &'a self,
        access: &'a Arc<Access>,
        Get { caller, ask, session }: Get,
        deadline: Option<Duration>,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        let span =
            debug_span!("request", rpc = "get_credential", uid = access.peer.uid, pid = access.peer.pid);
        let asked = Asked::credential(&self.audit, access, Verb::Get, &ask.source);
        let get = async move {
            let session = convert::session(session, access);
            let (spec, request) = self.resolve(ask, access, caller, deadline).await?;
            let request = cache::Request { session, ..request };
            let subject = Subject::of(&spec);
            self.cache.get(spec, &request).await.map_err(|failed| refused(&subject, &failed))
        };
        Box::pin(async move {
            let generation = |issued: &Arc<Issued>| Some(issued.generation.to_string());
            let issued = asked.issued(get.instrument(span).await, generation)?;
            Ok(issued.encoded.frame.clone())
        })
    }
}

impl<R: PluginRunner> BrokerService<R> {
    pub(super) async fn watch(
        &self,
        request: Request<pb::WatchCredentialRequest>,
    ) -> Result<Response<MessageStream<pb::WatchCredentialResponse>>, Status> {
        let (access, slot) = (Arc::clone(Access::of(&request)?), watch_slot(&request)?);
        let peer = access.peer;
        let ask = convert::ask(request.into_inner().r#ref, &access, Verb::Watch)?;
        let asked = Asked::credential(&self.audit, &access, Verb::Watch, &ask.source);
        self.resolver.settled(&ask).await;
        let (cache, resolver) = (self.cache.clone(), Arc::clone(&self.resolver));
        let caller = (Arc::clone(&access), named(&peer, ""));
        let following = CredentialStream::start(cache, resolver, ask, (caller, self.audit.clone()), slot);
        let following = asked.decided(following)?;
        Ok(Preencoded::response(following.messages()))
    }

    pub(super) async fn report(
        &self,
        request: Request<pb::ReportRejectedRequest>,
    ) -> Result<Response<pb::ReportRejectedResponse>, Status> {
        let (access, deadline) = (Arc::clone(Access::of(&request)?), deadline(request.metadata().as_ref()));
        let peer = access.peer;
        let pb::ReportRejectedRequest { r#ref, generation } = request.into_inner();
        if generation.is_empty() {
            return Err(status::invalid("`generation` is empty: say which credential was rejected"));
        }
        let ask = convert::ask(r#ref, &access, Verb::Report)?;
        let asked = Asked::credential(&self.audit, &access, Verb::Report, &ask.source);
        let report = async {
            let (spec, request) = self.resolve(ask, &access, named(&peer, ""), deadline).await?;
            let subject = Subject::of(&spec);
            let reported = self.cache.report(spec, &generation, &request).await;
            reported.map_err(|failed| refused(&subject, &failed))
        };
        let span = debug_span!("request", rpc = "report_rejected", uid = peer.uid, pid = peer.pid);
        let generation = |reported: &Reported| Some(reported.issued.generation.to_string());
        let reported = asked.issued(report.instrument(span).await, generation);
        reported.map(|reported| Preencoded::message(report_answer(&reported)))
    }

    pub(super) async fn resolve(
        &self,
        mut ask: CredentialRequest,
        access: &Access,
        caller: Caller,
        deadline: Option<Duration>,
    ) -> Result<(PluginSpec, cache::Request), Status> {
        let deadline = wait_within(deadline, self.resolver.settled(&ask)).await;
        let spec = access.resolve(&self.resolver, &mut ask).map_err(|error| {
            tracing::debug!("request refused: {error}");
            status::unresolved(&error, &ask.source)
        })?;
        trace::names(&spec);
        let verify_at = verifiable_at(&spec.provider, spec.target.as_ref(), ask.cluster.as_ref());
        Ok((spec, cache::Request { caller, deadline, verify_at, ..cache::Request::default() }))
    }
}

/// The answer to a report: the answer to a get, and the outcome.
fn report_answer(reported: &Reported) -> Bytes {
    use pb::report_rejected_response::Outcome;
    let (outcome, retry_after) = match reported.outcome {
        ReportOutcome::Replaced => (Outcome::Replaced, None),
        ReportOutcome::AlreadyReplaced => (Outcome::AlreadyReplaced, None),
        ReportOutcome::TooEarly { retry_after } => (Outcome::TooEarly, convert::duration(retry_after)),
        ReportOutcome::NothingNewer => (Outcome::NothingNewer, None),
        ReportOutcome::UnknownGeneration => (Outcome::UnknownGeneration, None),
    };
    let outcome = outcome.into();
    let more = pb::ReportRejectedResponse { outcome, retry_after, ..pb::ReportRejectedResponse::default() };
    preencoded::extended(&reported.issued.encoded.frame, &more)
}

pub(super) fn refused(subject: &Subject, failed: &Failed) -> Status {
    tracing::debug!(provider = subject.provider(), "request failed: {failed}");
    status::failed(subject, failed)
}

/// The caller with this name, which is empty if the caller sent none. Only a hash of the name is kept.
pub(super) fn named(peer: &Peer, name: &str) -> Caller {
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let name = if name.is_empty() { 0 } else { HASHES.hash_one(name).max(1) };
    Caller { name, peer: peer.process(), ..Caller::default() }
}

#[cfg(test)]
mod tests;
