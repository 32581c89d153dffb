//! The calls that answer with a credential: `GetCredential`, `WatchCredential`, `AttendCredential` and `ReportRejected`.
//!
//! The answers were encoded once, when the credential arrived. They bypass the generated service, which would encode
//! each of them again.

use std::{
    convert::Infallible,
    future::Future,
    hash::{BuildHasher as _, RandomState},
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use http::Request as HttpRequest;
use pb::credential_broker_server::CredentialBrokerServer;
use prost::Message as _;
use tokio::time::Instant;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, ServerStreamingService, UnaryService},
};
use tower::Service;
use tracing::{Instrument as _, debug_span};

use super::{
    Peer,
    access::Access,
    asked::{self, Asked},
    codec::Encoded,
    convert,
    follow::{CredentialMessages, CredentialStream, WatchSlots},
    preencoded::{self, Preencoded},
    service::{BrokerService, REQUEST},
    status::{self, Subject},
};
use crate::{
    access::Verb,
    cache::{self, Caller, Failed, Lookup, ReportOutcome, Reported},
    credential::Issued,
    exec::PluginRunner,
    plugin::{PluginSpec, verifiable_at},
    resolver::CredentialRequest,
    trace,
};

/// The path of `GetCredential`.
pub(super) const GET: &str = "/credbroker.v1.CredentialBroker/GetCredential";

/// Answers `GetCredential` from memory.
pub(super) trait Memory: Send + Sync {
    /// The framed answer to `message`, an encoded request. `None`: the service must decide, and reports any error.
    fn recall(&self, access: &Access, message: Bytes) -> Option<Bytes>;
}

impl<R: PluginRunner> Memory for BrokerService<R> {
    fn recall(&self, access: &Access, message: Bytes) -> Option<Bytes> {
        let (caller, reference) = asking(&access.peer, pb::GetCredentialRequest::decode(message).ok()?);
        let ask = convert::ask(reference, access, Verb::Get).ok()?;
        let key = self.resolver.key(&ask).ok().filter(|_| access.is_current(&ask.permit))?;
        match self.cache.lookup(&key, &caller) {
            Lookup::Served(issued) => {
                self.audit.hit(|| asked::hit(access, &ask.source, issued.generation.to_string()));
                if trace::is_recording() {
                    // The key alone does not say which provider it is.
                    self.resolver.resolve(ask).iter().for_each(trace::names);
                }
                Some(issued.encoded.frame.clone())
            }
            Lookup::Undecided => None,
        }
    }
}

/// The `CredentialBroker` service. It handles the calls of this module, and the generated service handles the others.
#[derive(Debug)]
pub(super) struct Credentials<R> {
    broker: Arc<BrokerService<R>>,
    others: CredentialBrokerServer<BrokerService<R>>,
}

impl<R> Clone for Credentials<R> {
    fn clone(&self) -> Self {
        Self { broker: Arc::clone(&self.broker), others: self.others.clone() }
    }
}

impl<R: PluginRunner> Credentials<R> {
    pub(super) fn new(broker: Arc<BrokerService<R>>) -> Self {
        let others = CredentialBrokerServer::from_arc(Arc::clone(&broker));
        Self { broker, others: others.max_decoding_message_size(REQUEST) }
    }
}

impl<R> NamedService for Credentials<R> {
    const NAME: &'static str = "credbroker.v1.CredentialBroker";
}

type ResponseFuture<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

impl<R: PluginRunner> Service<HttpRequest<Body>> for Credentials<R> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let broker = Arc::clone(&self.broker);
        match request.uri().path() {
            GET => Box::pin(async move { Ok(grpc().unary(GetCredential(broker), request).await) }),
            "/credbroker.v1.CredentialBroker/WatchCredential" => {
                Box::pin(async move { Ok(grpc().server_streaming(WatchCredential(broker), request).await) })
            }
            "/credbroker.v1.CredentialBroker/AttendCredential" => {
                Box::pin(async move { Ok(grpc().server_streaming(AttendCredential(broker), request).await) })
            }
            "/credbroker.v1.CredentialBroker/ReportRejected" => {
                Box::pin(async move { Ok(grpc().unary(ReportRejected(broker), request).await) })
            }
            _ => self.others.call(request),
        }
    }
}

fn grpc<T: prost::Message + Default + Send + 'static>() -> Grpc<Encoded<T>> {
    Grpc::new(Encoded::default()).apply_max_message_size_config(Some(REQUEST), None)
}

struct GetCredential<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> UnaryService<pb::GetCredentialRequest> for GetCredential<R> {
    type Response = Bytes;
    type Future = ResponseFuture<Response<Bytes>>;

    fn call(&mut self, request: Request<pb::GetCredentialRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.get(request).await })
    }
}

struct WatchCredential<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> ServerStreamingService<pb::WatchCredentialRequest> for WatchCredential<R> {
    type Response = Bytes;
    type ResponseStream = CredentialMessages;
    type Future = ResponseFuture<Response<CredentialMessages>>;

    fn call(&mut self, request: Request<pb::WatchCredentialRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.watch(request).await })
    }
}

struct AttendCredential<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> ServerStreamingService<pb::AttendCredentialRequest> for AttendCredential<R> {
    type Response = Bytes;
    type ResponseStream = CredentialMessages;
    type Future = ResponseFuture<Response<CredentialMessages>>;

    fn call(&mut self, request: Request<pb::AttendCredentialRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.attend(request).await })
    }
}

struct ReportRejected<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> UnaryService<pb::ReportRejectedRequest> for ReportRejected<R> {
    type Response = Bytes;
    type Future = ResponseFuture<Response<Bytes>>;

    fn call(&mut self, request: Request<pb::ReportRejectedRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.report(request).await })
    }
}

impl<R: PluginRunner> BrokerService<R> {
    async fn get(&self, request: Request<pb::GetCredentialRequest>) -> Result<Response<Bytes>, Status> {
        let (access, deadline) = (Arc::clone(Access::of(&request)?), deadline(&request));
        let peer = access.peer;
        let mut message = request.into_inner();
        let session = std::mem::take(&mut message.session);
        let session = if message.at_terminal { convert::session(session, &access) } else { None };
        let (caller, reference) = asking(&peer, message);
        let ask = convert::ask(reference, &access, Verb::Get)?;
        let asked = Asked::credential(&self.audit, &access, Verb::Get, &ask.source);
        let get = async {
            let (spec, request) = self.resolve(ask, &access, caller, deadline).await?;
            let request = cache::Request { session, ..request };
            let subject = Subject::of(&spec);
            self.cache.get(spec, &request).await.map_err(|failed| refused(&subject, &failed))
        };
        let span = debug_span!("request", rpc = "get_credential", uid = peer.uid, pid = peer.pid);
        let issued = asked.issued(get.instrument(span).await, |issued| Some(issued.generation.to_string()));
        issued.map(|issued| answer(&issued))
    }

    async fn watch(
        &self,
        request: Request<pb::WatchCredentialRequest>,
    ) -> Result<Response<CredentialMessages>, Status> {
        let (access, slot) = (Arc::clone(Access::of(&request)?), WatchSlots::take(&request)?);
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

    async fn report(&self, request: Request<pb::ReportRejectedRequest>) -> Result<Response<Bytes>, Status> {
        let (access, deadline) = (Arc::clone(Access::of(&request)?), deadline(&request));
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
        reported.map(|reported| report_answer(&reported))
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
            status::unresolved(&error)
        })?;
        trace::names(&spec);
        let verify_at = verifiable_at(&spec.provider, spec.target.as_ref(), ask.cluster.as_ref());
        Ok((spec, cache::Request { caller, deadline, verify_at, ..cache::Request::default() }))
    }
}

fn answer(issued: &Issued) -> Response<Bytes> {
    Response::new(issued.encoded.frame.clone())
}

/// The answer to a report: the answer to a get, and the outcome.
fn report_answer(reported: &Reported) -> Response<Bytes> {
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
    Response::new(preencoded::extended(&reported.issued.encoded.frame, &more))
}

pub(super) fn refused(subject: &Subject, failed: &Failed) -> Status {
    tracing::debug!(provider = subject.provider(), "request failed: {failed}");
    status::failed(subject, failed)
}

/// Splits a request into the caller and the reference. Takes the request by value, so that the caller's name is freed
/// before the wait.
pub(super) fn asking(peer: &Peer, request: pb::GetCredentialRequest) -> (Caller, Option<pb::CredentialRef>) {
    let pb::GetCredentialRequest { r#ref, exec_plugin_caller, at_terminal, session: _ } = request;
    let pb::ExecPluginCaller { id, without_exec_info } = exec_plugin_caller.unwrap_or_default();
    (Caller { without_exec_info, at_terminal, ..named(peer, &id) }, r#ref)
}

/// The caller with this name, which is empty if the caller sent none. Only a hash of the name is kept.
fn named(peer: &Peer, name: &str) -> Caller {
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let name = if name.is_empty() { 0 } else { HASHES.hash_one(name).max(1) };
    Caller { name, peer: peer.process(), ..Caller::default() }
}

/// Waits for `event` until the deadline, and returns the rest of the deadline.
async fn wait_within(deadline: Option<Duration>, event: impl Future<Output = ()>) -> Option<Duration> {
    let Some(limit) = deadline else {
        event.await;
        return None;
    };
    #[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the deadline does")]
    let started = Instant::now();
    drop(tokio::time::timeout(limit, event).await);
    Some(limit.saturating_sub(started.elapsed()))
}

/// The caller's `grpc-timeout` less a margin, so that the broker can still report what it waits for.
pub(super) fn deadline<T>(request: &Request<T>) -> Option<Duration> {
    let text = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let timeout = timeout(text)?;
    Some(timeout.saturating_sub((timeout / 10).min(MARGIN)))
}

/// Maximum part of a caller's deadline that is reserved for the answer to reach the caller.
const MARGIN: Duration = Duration::from_millis(500);

/// Parses at most eight digits and a unit, as gRPC defines them. `None`: not a valid timeout, which means no deadline.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| valid)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::with_token as issued_for_tests;

    #[test]
    fn a_timeout_has_digits_and_a_unit() {
        let table = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("45S", Some(Duration::from_secs(45))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000m", None),
            ("", None),
            ("S", None),
            ("-1S", None),
            ("1.5S", None),
            ("1s", None),
            ("1é", None),
        ];
        for (text, expected) in table {
            assert_eq!(timeout(text), expected, "{text}");
        }
    }

    #[test]
    fn the_broker_answers_before_the_callers_deadline() {
        let within = |text: &str| {
            let mut request = Request::new(());
            request.metadata_mut().insert("grpc-timeout", text.parse().unwrap());
            deadline(&request)
        };
        assert_eq!(within("45S"), Some(Duration::from_millis(44_500)));
        assert_eq!(within("1S"), Some(Duration::from_millis(900)));
        assert_eq!(within("soon"), None);
        assert_eq!(deadline(&Request::new(())), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_before_the_run_counts_against_the_deadline() {
        let secs = Duration::from_secs;
        let table = [
            (Some(secs(1)), secs(5), Some(Duration::ZERO), secs(1)),
            (Some(secs(7)), secs(5), Some(secs(2)), secs(5)),
            (None, secs(5), None, secs(5)),
        ];
        for (deadline, takes, left, waited) in table {
            #[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
            let started = Instant::now();
            assert_eq!(wait_within(deadline, tokio::time::sleep(takes)).await, left, "{deadline:?}");
            assert_eq!(started.elapsed(), waited, "{deadline:?}");
        }
    }

    #[test]
    fn a_report_is_answered_with_the_credential_and_what_was_done() {
        use pb::report_rejected_response::Outcome;
        let credential = pb::Credential { generation: "e-7".into(), ..pb::Credential::default() };
        let get = pb::GetCredentialResponse { credential: Some(credential.clone()), cluster: None };
        let mut issued = issued_for_tests("t");
        issued.encoded.frame = preencoded::frame(&get);
        let retry_after = Duration::from_secs(7);
        for (outcome, expected) in [
            (ReportOutcome::Replaced, Outcome::Replaced),
            (ReportOutcome::AlreadyReplaced, Outcome::AlreadyReplaced),
            (ReportOutcome::TooEarly { retry_after }, Outcome::TooEarly),
            (ReportOutcome::NothingNewer, Outcome::NothingNewer),
            (ReportOutcome::UnknownGeneration, Outcome::UnknownGeneration),
        ] {
            let reported = Reported { issued: Arc::new(issued.clone()), outcome };
            let frame = report_answer(&reported).into_inner();
            let answer = pb::ReportRejectedResponse::decode(preencoded::message(&frame).unwrap()).unwrap();
            assert_eq!((answer.outcome(), answer.credential.as_ref()), (expected, Some(&credential)));
            let after = answer.retry_after.map(|after| after.seconds);
            assert_eq!(after, (expected == Outcome::TooEarly).then_some(7));
        }
    }

    #[test]
    fn callers_differ_by_process_where_the_kernel_shows_it_and_by_uid_elsewhere() {
        let of = |uid, pid| Peer { listener: 0, uid, gid: 1, pid };
        let at = |pid| of(1, pid);
        assert_eq!(named(&at(Some(7)), "a").peer, named(&at(Some(7)), "b").peer);
        assert_ne!(named(&at(Some(7)), "a").peer, named(&at(Some(8)), "a").peer);
        assert_eq!(named(&at(None), "a").peer, named(&at(None), "b").peer, "a name proves nothing");
        assert_ne!(named(&at(None), "a").peer, named(&of(2, None), "a").peer);
        assert_eq!(named(&at(Some(7)), "a").name, named(&at(Some(8)), "a").name);
        assert_eq!(named(&at(Some(7)), "").name, 0);
    }
}
