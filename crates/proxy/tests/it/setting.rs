//! One target behind a proxy, and a client of it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use credbroker_plugin::access::Principal;
use credbroker_proto::v1;
use credbroker_proxy::{AnswerBody, Caller, KnownTarget, Options, Proxy, Records, RequestRecord, Rights};
use credbroker_test_support::{Accepts, ApiServer};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::UnixStream, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::broker::{FakeBroker, issued};

/// Everything is there after half a minute, or it never is.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Setting {
    pub(crate) api: ApiServer,
    pub(crate) broker: FakeBroker,
    pub(crate) rights: Arc<SomeRights>,
    pub(crate) records: Arc<Kept>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) caller: Arc<Caller>,
    /// When the port accepts no more.
    pub(crate) closing: CancellationToken,
}

/// All but those that are named.
#[derive(Debug, Default)]
pub(crate) struct SomeRights {
    denied: Mutex<HashSet<String>>,
    changes: watch::Sender<u64>,
}

impl SomeRights {
    pub(crate) fn deny(&self, target: &str) {
        self.denied.lock().unwrap().insert(target.to_owned());
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl Rights for SomeRights {
    fn may_use(&self, _: &Caller, target: &KnownTarget) -> bool {
        !self.denied.lock().unwrap().contains(&target.path())
    }

    fn may_list(&self, caller: &Caller, target: Option<&KnownTarget>) -> bool {
        target.is_none_or(|target| self.may_use(caller, target))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Kept(pub(crate) watch::Sender<Vec<RequestRecord>>);

impl Records for Kept {
    fn push(&self, record: RequestRecord) {
        self.0.send_modify(|records| records.push(record));
    }
}

impl Kept {
    /// Waits for so many records.
    pub(crate) async fn until(&self, count: usize) -> Vec<RequestRecord> {
        let mut records = self.0.subscribe();
        let enough = timeout(SOON, records.wait_for(|records| records.len() >= count)).await;
        enough.unwrap_or_else(|_| panic!("{:?}", self.0.borrow())).unwrap().clone()
    }
}

pub(crate) type Client = SendRequest<Full<Bytes>>;

impl Setting {
    /// With a token in place.
    pub(crate) async fn drain(&self) {
        self.proxy.drain(&self.closing).await;
    }

    pub(crate) fn with_token() -> Self {
        Self::new(|api| {
            api.accept_token("token-1");
            issued("1", None, Some("token-1"))
        })
    }

    pub(crate) fn new(first: impl FnOnce(&ApiServer) -> v1::Credential) -> Self {
        Self::with(Options::default(), first)
    }

    pub(crate) fn with(options: Options, first: impl FnOnce(&ApiServer) -> v1::Credential) -> Self {
        let api = ApiServer::start(Accepts::Either);
        let broker = FakeBroker::start();
        broker.hub_is_synced(true);
        broker.enlist("paris", cluster(&api));
        broker.issue_for("paris", first(&api), cluster(&api));
        let (rights, records) = (Arc::<SomeRights>::default(), Arc::<Kept>::default());
        let options = Options { records: Arc::clone(&records) as _, ..options };
        let proxy = Proxy::new(broker.to(), Arc::clone(&rights) as _, options);
        let principal = Principal { uid: Some(1000), listener: "agents".into(), ..Principal::default() };
        let caller = Arc::new(Caller { principal, pid: None, rule: None });
        Self { api, broker, rights, records, proxy, caller, closing: CancellationToken::new() }
    }

    pub(crate) fn rotate(&self, next: v1::Credential) {
        self.broker.issue_for("paris", next, cluster(&self.api));
    }

    /// A connection to the proxy, as a listener serves it.
    pub(crate) async fn connect(&self) -> Client {
        let (client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.stream())).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        client
    }

    /// The same without an HTTP client.
    pub(crate) fn stream(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (proxy, caller) = (Arc::clone(&self.proxy), Arc::clone(&self.caller));
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (proxy, caller) = (Arc::clone(&proxy), Arc::clone(&caller));
                async move {
                    Ok::<Response<AnswerBody>, std::convert::Infallible>(proxy.answer(&caller, request).await)
                }
            });
            let server = hyper::server::conn::http1::Builder::new();
            // A client that goes away does not fail the listener.
            drop(server.serve_connection(TokioIo::new(theirs), service).with_upgrades().await);
        });
        ours
    }

    /// One request, and its whole answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        let mut client = self.connect().await;
        let answer = async {
            let (head, body) = client.send_request(request).await.unwrap().into_parts();
            Response::from_parts(head, body.collect().await.unwrap().to_bytes())
        };
        timeout(SOON, answer).await.expect("an answer")
    }

    /// The head of the answer to a watch, and its body.
    pub(crate) async fn watch(&self) -> Incoming {
        self.begin(get(WATCH)).await.into_body()
    }

    /// The head of the answer to a request.
    pub(crate) async fn begin(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let mut client = self.connect().await;
        timeout(SOON, client.send_request(request)).await.expect("an answer").unwrap()
    }

    /// Waits until nothing of an answer that is not read is passed on any longer.
    pub(crate) async fn until_buffers_are_full(&self) {
        let passed = || self.proxy.usage(&self.caller).unwrap()[0].bytes_down;
        let mut before = 0;
        let more = async |before| {
            while passed() == before {
                tokio::task::yield_now().await;
            }
        };
        while timeout(Duration::from_millis(300), more(before)).await.is_ok() {
            before = passed();
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response<Bytes> {
        self.send(get(path)).await
    }
}

pub(crate) fn cluster(api: &ApiServer) -> v1::Cluster {
    v1::Cluster {
        server: api.url(),
        certificate_authority_data: Some(api.ca_pem().into_bytes().into()),
        ..v1::Cluster::default()
    }
}

/// A request to the target `fleet/paris`.
pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("/clusters/fleet/paris{path}"))
        .header("host", "127.0.0.1")
        .body(Full::default())
        .unwrap()
}

/// A watch in which something happens when a test says so.
pub(crate) const WATCH: &str =
    "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles?watch=true";

/// A request with a body to the same target.
pub(crate) fn post(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post("/clusters/fleet/paris/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("host", "127.0.0.1")
        .body(Full::from(body.into()))
        .unwrap()
}

/// The object that the proxy answers instead of an API server.
pub(crate) fn status(answer: &Response<Bytes>) -> Value {
    let status: Value = serde_json::from_slice(answer.body()).unwrap_or_else(|_| panic!("{answer:?}"));
    assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &answer.status().as_u16().into()));
    status
}

/// The next piece of a body. `None`: it has ended as it should.
pub(crate) async fn next(body: &mut Incoming) -> Option<Bytes> {
    let frame = timeout(SOON, body.frame()).await.expect("news");
    frame.map(|frame| frame.expect("no error").into_data().expect("data"))
}

/// Reads the rest of a body that ends as it should.
pub(crate) async fn rest(body: Incoming) -> Result<Bytes, hyper::Error> {
    Ok(timeout(SOON, body.collect()).await.expect("an end")?.to_bytes())
}
