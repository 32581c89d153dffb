//! Who may call, and which of the services answers: what the server on the socket asks.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use credbroker_proto::{
    FILE_DESCRIPTOR_SET,
    v1::credential_broker_server::CredentialBrokerServer,
    v1alpha1::{
        credential_broker_admin_server::CredentialBrokerAdminServer,
        credential_broker_login_server::CredentialBrokerLoginServer,
    },
};
use credbroker_uds_server as uds;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header::CONTENT_TYPE, request::Parts};
use rustix::process::getpid;
use tonic::{Status, body::Body, codegen::Body as _, service::Routes};
use tonic_health::pb::health_server::HealthServer;
use tower::Service as _;
use uds::{CallKind, Charge, Loss, PeerIdentity, PeerProcess, REQUEST, Refusal};

use super::{
    access::{Access, PeerRun},
    attend::Leases,
    audit_record,
    broker::Broker,
    convert::deadline,
    credentials::{BrokerService, Get},
    health::Health,
    metrics::{answered, count_answer},
    preencoded::{self, Preencoded},
    status,
};
use credbroker_observe::{metrics::Rpc, trace::RequestSpan};
use credbroker_plugin::{
    Identities, Origin,
    access::{Facts, Principal, Process},
};
use credbroker_runner::{LiveRuns, PluginRunner};

/// Prefix of streaming methods that count as watches. Their requests are streams too.
const REFLECTION: &str = "/grpc.reflection.";
const WATCH_CREDENTIALS: &str = "/credbroker.v1.CredentialBroker/WatchCredentials";
const HEALTH: &str = "/grpc.health.v1.Health/";

fn services<R: PluginRunner>(broker: &Arc<Broker<R>>) -> Routes {
    let health = HealthServer::new(Health(Arc::clone(broker)));
    let service = Arc::new(BrokerService { broker: Arc::clone(broker), leases: Leases::default() });
    let admin =
        CredentialBrokerAdminServer::from_arc(Arc::clone(&service)).max_decoding_message_size(REQUEST);
    let login =
        CredentialBrokerLoginServer::from_arc(Arc::clone(&service)).max_decoding_message_size(REQUEST);
    let service = CredentialBrokerServer::from_arc(service).max_decoding_message_size(REQUEST);
    Routes::new(service).add_service(login).add_service(admin).add_service(health).prepare()
}

/// Server reflection. Its decoded descriptors take half a megabyte.
fn reflection() -> Routes {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Error details, for clients that do not have their definitions.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    // Both builds succeed: the descriptor sets are constants, and a test queries the services.
    match (builder().build_v1(), builder().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => Routes::new(v1).add_service(v1alpha).prepare(),
        _ => Routes::default(),
    }
}

/// The services of a broker, for peers with rights.
#[derive(Debug)]
pub struct Gate<R> {
    broker: Arc<Broker<R>>,
    routes: Routes,
    /// Built by the first request for it.
    reflection: OnceLock<Routes>,
    /// Names of the listeners, in the order of the configuration.
    listeners: Vec<Arc<str>>,
    /// Plugin runs, whose processes are not served.
    runs: LiveRuns,
    identities: Arc<Identities>,
    own_pid: u32,
}

impl<R: PluginRunner> Gate<R> {
    /// Serves `broker` at `listeners`, except to processes of `runs`.
    pub fn new(broker: Arc<Broker<R>>, listeners: Vec<Arc<str>>, runs: LiveRuns) -> Self {
        let (routes, own_pid) = (services(&broker), getpid().as_raw_nonzero().get().cast_unsigned());
        let identities = broker.cache.identities();
        Self { broker, routes, reflection: OnceLock::new(), listeners, runs, identities, own_pid }
    }

    /// The run of a process, if that is a plugin or a descendant of one. Its uid does not count: a plugin may change its
    /// user.
    ///
    /// Decided once for each connection. The processes of a run are younger than the run, so none of them has connected
    /// before it. If the process has ended, it may have left its connection to one that still runs.
    fn run(&self, process: &PeerProcess) -> Option<PeerRun> {
        let (pid, runs) = (process.pid(), &self.runs);
        if pid == self.own_pid || runs.is_empty() {
            return None;
        }
        let find = || {
            let run = runs.find(pid)?;
            // Of a process that has ended, another one may have the number, and its run must go on.
            Some(if process.is_alive() { PeerRun::Known(run) } else { PeerRun::Possible })
        };
        // Twice: a process of the chain may have ended between two looks, and its children have another parent then.
        find().or_else(|| {
            if process.is_alive() { find() } else { runs.may_have_inherited().then_some(PeerRun::Possible) }
        })
    }

    fn refused(&self, access: &Access, path: &str, status: Status) -> Status {
        audit_record::refused(&self.broker.audit, access, path, &status);
        status
    }
}

/// Whether the peer may call this without a right.
fn is_for_owners(access: &Access, path: &str) -> bool {
    path.starts_with(HEALTH) && access.may_ask_for_health()
}

/// Whether tonic would accept the head of this request. If not, tonic gets the request and refuses it.
fn is_grpc(head: &Parts) -> bool {
    let content = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    head.method == Method::POST && content.is_some_and(|content| content.starts_with(b"application/grpc"))
}

/// What a peer of the listener of that name is to access rules.
pub fn principal(identity: PeerIdentity, listener: Arc<str>) -> Principal {
    let PeerIdentity { uid, gid, is_owner, .. } = identity;
    Principal { uid, gid, process: identity.process.map(process).unwrap_or_default(), listener, is_owner }
}

fn process(process: PeerProcess) -> Process {
    let is_urgent = process.is_urgent();
    let process = Process::new(move || {
        let uds::ProcessFacts { groups, executable, is_beside } = process.facts();
        let origin = if is_beside { Origin::Beside } else { Origin::Elsewhere };
        Facts { groups, executable, origin }
    });
    if is_urgent {
        process.facts();
    }
    process
}

impl<R: PluginRunner> uds::Program for Gate<R> {
    type Peer = Access;
    type Method = Rpc;
    type Span = RequestSpan;

    /// The broker's own user and root may always connect, because they may ask for its health.
    fn meet(&self, identity: PeerIdentity) -> (Access, bool) {
        self.identities.meet();
        let run = identity.process.as_ref().and_then(|process| self.run(process));
        let peer = identity.peer;
        let listener = self.listeners.get(peer.listener).cloned().unwrap_or_default();
        let mut access = Access::new(peer, principal(identity, listener), self.broker.policies.clone());
        access.run = run;
        let has_rights = !access.rights().is_empty() || access.may_ask_for_health();
        let is_welcome = access.run.is_none() && has_rights;
        (access, is_welcome)
    }

    fn admit(&self, access: &Access, path: &str) -> Result<CallKind, Status> {
        if let Some(run) = &access.run {
            if let PeerRun::Known(run) = run {
                run.refused.cancel();
            }
            return Err(self.refused(access, path, status::descendant()));
        }
        // The services check more: which verb, and for which credential.
        if access.rights().is_empty() && !is_for_owners(access, path) {
            return Err(self.refused(access, path, access.denied()));
        }
        Ok(match path {
            // The broker's other services take a slot themselves.
            "/grpc.health.v1.Health/Watch" => CallKind::Watch,
            WATCH_CREDENTIALS => CallKind::Stream,
            _ if path.starts_with(REFLECTION) => CallKind::Stream,
            _ => CallKind::Call,
        })
    }

    fn loss(&self, access: &Arc<Access>, path: &str) -> Option<Loss> {
        if is_for_owners(access, path) {
            return None;
        }
        let (access, audit, path) = (Arc::clone(access), self.broker.audit.clone(), path.to_owned());
        Some(Box::pin(async move {
            access.lost_all().await;
            let status = access.denied();
            audit_record::refused(&audit, &access, &path, &status);
            status
        }))
    }

    fn begin(&self, path: &str, headers: &HeaderMap) -> (Rpc, RequestSpan) {
        let rpc = Rpc::of(path);
        (rpc, RequestSpan::start(rpc, headers))
    }

    fn within<F: Future + Send>(span: RequestSpan, call: F) -> impl Future<Output = F::Output> + Send {
        span.around(call)
    }

    /// A cache hit is only a look-up, so it bypasses the services. Of another request, its head has what was learned.
    fn recall(&self, access: &Access, head: &mut Parts, body: &Bytes) -> Option<Bytes> {
        if Rpc::of(head.uri.path()) != Rpc::GET {
            return None;
        }
        let message = preencoded::message(body).filter(|_| is_grpc(head))?;
        let frame = self.broker.recall(access, message, &mut head.extensions)?;
        answered(&self.broker.metrics, Rpc::GET);
        Some(frame)
    }

    async fn call(&self, access: &Arc<Access>, mut request: Request<Body>) -> Response<Body> {
        // Its decoded form, and what it resolves to.
        let size = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
        if let Some(charge) = request.extensions().get::<Arc<Charge>>()
            && let Err(why) = charge.charge(size.saturating_mul(2))
        {
            return status::refusal(why).into_http();
        }
        if let Some(get) = request.extensions_mut().remove::<Get>() {
            let deadline = deadline(request.headers());
            drop(request);
            let answer = self.broker.get(access, get, deadline).await;
            return answer.map_or_else(Status::into_http, preencoded::response);
        }
        request.extensions_mut().insert(Arc::clone(access));
        let is_reflection = request.uri().path().starts_with(REFLECTION);
        let mut routes =
            if is_reflection { self.reflection.get_or_init(reflection) } else { &self.routes }.clone();
        let mut response = routes.call(request).await.unwrap_or_else(|never| match never {});
        Preencoded::put_in_place(&mut response);
        response
    }

    fn status(why: Refusal) -> Status {
        status::refusal(why)
    }

    fn answered(&self, access: &Access, method: Rpc, headers: &HeaderMap) {
        count_answer(&self.broker.metrics, method, &access.peer, headers);
    }

    /// Reads what can be learned about the peer's process, if nothing has needed it yet, and closes its pidfd.
    fn settle(&self, access: &Access) {
        access.principal.process.facts();
    }
}
