//! `CredentialBroker`: the calls that answer with a credential, and those about clusters.
//!
//! The answers were encoded once, when the credential arrived.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use credbroker_proto::v1::{self as pb, credential_broker_server::CredentialBroker};
use http::Extensions;
use prost::Message as _;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

use super::{
    access::{Access, watch_slot},
    attend::Leases,
    audit_record::{self, Asked},
    broker::Broker,
    clusters::Clusters,
    convert::{self, WatchedReference, deadline, named, wait_within},
    preencoded::{self, Follow as _, MessageStream},
    references::References,
    status::{self, Subject},
    watch::CredentialStream,
};
use credbroker_cache as cache;
use credbroker_cache::{Caller, CredentialCache, ReportOutcome, Reported};
use credbroker_credential::Issued;
use credbroker_fleet::resolver::CredentialRequest;
use credbroker_observe::trace;
use credbroker_plugin::{
    Context, PluginSpec,
    access::{Rights, Verb},
    verifiable_at,
};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::Charge;

/// A `GetCredential`: who asks for what.
#[derive(Clone, Debug)]
pub(super) struct Get {
    caller: Caller,
    ask: CredentialRequest,
    min_lifetime: Duration,
    /// Counts only if memory has no answer: where the caller runs takes longer to read than the rest of a call.
    session: BTreeMap<String, String>,
}

impl Get {
    /// Takes the request by value, so that the caller's name is freed before a wait.
    pub(super) fn of(request: pb::GetCredentialRequest, access: &Access) -> Result<Self, Status> {
        let pb::GetCredentialRequest { r#ref, exec_plugin_caller, at_terminal, session, min_lifetime } =
            request;
        let pb::ExecPluginCaller { id, without_exec_info } = exec_plugin_caller.unwrap_or_default();
        let caller = Caller { without_exec_info, at_terminal, ..named(&access.peer, &id) };
        let session = if at_terminal { session } else { BTreeMap::new() };
        let (ask, min_lifetime) =
            (convert::ask(r#ref, access, Verb::Get)?, convert::min_lifetime(min_lifetime)?);
        Ok(Self { caller, ask, min_lifetime, session })
    }
}

impl<R: PluginRunner> Broker<R> {
    /// The framed answer to `message`, an encoded `GetCredential`, from memory. Never waits. `None`: memory has none, and
    /// the [`Get`] is in `learned` if the request is valid. If not, the service reads it, and reports the error.
    pub(super) fn recall(&self, access: &Access, message: Bytes, learned: &mut Extensions) -> Option<Bytes> {
        let get = Get::of(pb::GetCredentialRequest::decode(message).ok()?, access).ok()?;
        let found = self.resolver.key_in_context(&get.ask).ok();
        let found = found.filter(|_| access.is_current(&get.ask.permit)).and_then(|(key, context)| {
            Some((self.cache.lookup(&key, &get.caller, get.min_lifetime)?, context))
        });
        let Some((issued, context)) = found else {
            learned.insert(get);
            return None;
        };
        audit_record::hit((&self.audit, &self.resolver), access, &get.ask.source, || {
            issued.generation.to_string()
        });
        // The key alone does not say which provider it is.
        trace::names(|| self.resolver.resolve(get.ask).ok());
        Some(answer(&self.cache, &issued, get.min_lifetime, context.as_deref()))
    }

    /// The framed answer to a request that memory did not answer.
    pub(super) async fn get(
        &self,
        access: &Arc<Access>,
        Get { caller, ask, min_lifetime, session }: Get,
        deadline: Option<Duration>,
    ) -> Result<Bytes, Status> {
        let asked = Asked::credential((&self.audit, &self.resolver), access, Verb::Get, &ask.source);
        let get = async {
            let session = convert::session(session, access);
            let (spec, request, context) = self.resolve(ask, access, caller, deadline).await?;
            let request = cache::Request { session, min_lifetime, ..request };
            let subject = Subject::of(&spec, context.as_deref());
            let issued = self.cache.get(spec, &request).await;
            Ok((issued.map_err(|failed| status::failed(&subject, &failed))?, context))
        };
        let generation = |(issued, _): &(Arc<Issued>, _)| Some(issued.generation.to_string());
        let get = get.instrument(access.span("get_credential"));
        let (issued, context) = asked.issued(get.await, generation)?;
        Ok(answer(&self.cache, &issued, min_lifetime, context.as_deref()))
    }

    pub(super) async fn resolve(
        &self,
        mut ask: CredentialRequest,
        access: &Access,
        caller: Caller,
        deadline: Option<Duration>,
    ) -> Result<(PluginSpec, cache::Request, Option<Arc<Context>>), Status> {
        let deadline = wait_within(deadline, self.resolver.settled(&ask)).await;
        let (spec, context) = access.resolve(&self.resolver, &mut ask).inspect_err(|status| {
            tracing::debug!("request refused: {}", status.message());
        })?;
        trace::names(|| Some(&spec));
        let own = context.as_ref().and_then(|context| Some(&*context.outcome.as_ref().ok()?.cluster));
        let verify_at = verifiable_at(&spec.provider, spec.target.as_ref(), own.or(ask.cluster.as_deref()));
        Ok((spec, cache::Request { caller, deadline, verify_at, ..cache::Request::default() }, context))
    }
}

/// The framed answer with `issued` in `context`, which says whether that lives for `min_lifetime`.
pub(super) fn answer<R: PluginRunner>(
    cache: &CredentialCache<R>,
    issued: &Issued,
    min_lifetime: Duration,
    context: Option<&Context>,
) -> Bytes {
    let frame = in_context(issued, context);
    if cache.is_short(issued, min_lifetime) { preencoded::short(&frame) } else { frame }
}

/// The framed answer with `issued`, and with the cluster of `context`.
pub(super) fn in_context(issued: &Issued, context: Option<&Context>) -> Bytes {
    let frame = &issued.encoded.frame;
    match context.and_then(|context| context.outcome.as_ref().ok()) {
        Some(target) if !target.gives_cluster => preencoded::with_cluster(frame, &target.cluster),
        _ => frame.clone(),
    }
}

#[derive(Debug)]
pub(super) struct BrokerService<R> {
    pub(super) broker: Arc<Broker<R>>,
    pub(super) leases: Leases,
}

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBroker for BrokerService<R> {
    /// For requests that the look-up in memory could not read.
    async fn get_credential(
        &self,
        request: Request<pb::GetCredentialRequest>,
    ) -> Result<Response<pb::GetCredentialResponse>, Status> {
        let (access, deadline) = (Arc::clone(Access::of(&request)?), deadline(request.metadata().as_ref()));
        let get = Get::of(request.into_inner(), &access)?;
        let frame = self.broker.get(&access, get, deadline).await?;
        preencoded::decoded(&frame).map(Response::new)
    }

    async fn watch_credential(
        &self,
        request: Request<pb::WatchCredentialRequest>,
    ) -> Result<Response<MessageStream<pb::WatchCredentialResponse>>, Status> {
        let (access, slot) = (Arc::clone(Access::of(&request)?), watch_slot(&request)?);
        let reference = WatchedReference::new(request.into_inner().r#ref.as_ref());
        Ok(CredentialStream::start(Arc::clone(&self.broker), reference, access, slot).await?.response())
    }

    /// The slot of the stream is taken already: it is known to be a stream before its first message.
    async fn watch_credentials(
        &self,
        request: Request<Streaming<pb::WatchCredentialsRequest>>,
    ) -> Result<Response<MessageStream<pb::WatchCredentialsResponse>>, Status> {
        let access = Arc::clone(Access::of(&request)?);
        let charge = request.extensions().get::<Arc<Charge>>().map(Arc::clone).ok_or_else(status::no_peer)?;
        Ok(References::new(Arc::clone(&self.broker), access, charge, request.into_inner()).response())
    }

    async fn report_rejected(
        &self,
        request: Request<pb::ReportRejectedRequest>,
    ) -> Result<Response<pb::ReportRejectedResponse>, Status> {
        let broker = &self.broker;
        let (access, deadline) = (Arc::clone(Access::of(&request)?), deadline(request.metadata().as_ref()));
        let pb::ReportRejectedRequest { r#ref, generation } = request.into_inner();
        if generation.is_empty() {
            return Err(status::invalid("`generation` is empty: say which credential was rejected"));
        }
        let ask = convert::ask(r#ref, &access, Verb::Report)?;
        let asked = Asked::credential((&broker.audit, &broker.resolver), &access, Verb::Report, &ask.source);
        let report = async {
            let (spec, request, context) =
                broker.resolve(ask, &access, named(&access.peer, ""), deadline).await?;
            let subject = Subject::of(&spec, context.as_deref());
            let reported = broker.cache.report(spec, &generation, &request).await;
            Ok((reported.map_err(|failed| status::failed(&subject, &failed))?, context))
        };
        let generation = |(reported, _): &(Reported, _)| Some(reported.issued.generation.to_string());
        let reported = asked.issued(report.instrument(access.span("report_rejected")).await, generation);
        let (reported, context) = reported?;
        report_answer(&reported, context.as_deref()).map(Response::new)
    }

    async fn list_clusters(
        &self,
        request: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        let rights = self.need(&request, "list_clusters", Verb::List)?;
        let request = request.into_inner();
        Ok(Response::new(self.clusters(request.include_contexts)?.page(request, rights).await?))
    }

    async fn watch_clusters(
        &self,
        request: Request<pb::WatchClustersRequest>,
    ) -> Result<Response<MessageStream<pb::WatchClustersResponse>>, Status> {
        let (access, slot) = (Arc::clone(Access::of(&request)?), watch_slot(&request)?);
        self.need(&request, "watch_clusters", Verb::List)?;
        let request = request.into_inner();
        Ok(self.clusters(request.include_contexts)?.follow(request, access, slot).await)
    }
}

impl<R: PluginRunner> BrokerService<R> {
    /// Without a hub there are contexts only.
    fn clusters(&self, with_contexts: bool) -> Result<&Arc<Clusters<R>>, Status> {
        let is_there = with_contexts || self.broker.resolver.fleet().is_some();
        if is_there { Ok(&self.broker.clusters) } else { Err(status::no_hub()) }
    }

    /// The rights of the caller, if it may do `verb` with anything. Records the decision.
    pub(super) fn need<T>(
        &self,
        request: &Request<T>,
        call: &'static str,
        verb: Verb,
    ) -> Result<Arc<Rights>, Status> {
        let access = Access::of(request)?;
        Asked::call(&self.broker.audit, access, call).decided(access.need(verb))
    }
}

/// The answer to a report: the answer to a get, and the outcome.
fn report_answer(
    reported: &Reported,
    context: Option<&Context>,
) -> Result<pb::ReportRejectedResponse, Status> {
    use pb::report_rejected_response::Outcome;
    let (outcome, retry_after) = match reported.outcome {
        ReportOutcome::Replaced => (Outcome::Replaced, None),
        ReportOutcome::AlreadyReplaced => (Outcome::AlreadyReplaced, None),
        ReportOutcome::TooEarly { retry_after } => (Outcome::TooEarly, convert::duration(retry_after)),
        ReportOutcome::NothingNewer => (Outcome::NothingNewer, None),
        ReportOutcome::UnknownGeneration => (Outcome::UnknownGeneration, None),
    };
    let answer = preencoded::decoded(&in_context(&reported.issued, context))?;
    Ok(pb::ReportRejectedResponse { outcome: outcome.into(), retry_after, ..answer })
}

#[cfg(test)]
mod tests;
