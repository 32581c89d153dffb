//! Metrics and health over HTTP, for Prometheus and for probes. It answers with stable reasons, and never with a message,
//! which may have the output of a plugin. Names of providers are for peers that the operator admits: who connects to a Unix socket,
//! and others if the configuration says so.

mod connections;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use credbroker_proto::Reason;
use futures_util::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST},
};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::{sleep, timeout},
};
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{
    broker::Broker,
    health::Checks,
    metrics::{write as write_broker, write_own},
};
use connections::{Connections, Limits};
use credbroker_observe::metrics::Exposition;
use credbroker_runner::PluginRunner;

/// The most bytes of the head of a request.
const HEAD: usize = 8 * 1024;
/// How long a peer has to send the head of its request.
const HEAD_TIME: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// How long a connection lives: one request.
const EXCHANGE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// Where the monitor listens.
pub type MonitorListener = Either<TcpListener, UnixListener>;

/// Who can connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// Users whom the mode of a Unix socket admits.
    Admitted,
    /// Every process of the machine, and web pages in its browsers.
    Machine,
    /// Every host that the network lets through.
    Network,
}

impl Reach {
    /// Peers of a machine have one address.
    fn limits(self) -> Limits {
        match self {
            Self::Admitted | Self::Machine => Limits { all: 16, of_one: 16 },
            Self::Network => Limits { all: 64, of_one: 4 },
        }
    }

    /// Whether answers have the names of providers if the configuration does not say it.
    fn names_providers(self, has_rules: bool) -> bool {
        match self {
            Self::Admitted => true,
            Self::Machine => !has_rules,
            Self::Network => false,
        }
    }
}

/// Writes metrics of a part that this crate does not know.
pub type WriteMetrics = Box<dyn Fn(&mut Exposition) + Send + Sync>;

/// What a monitor answers about, and to whom.
#[expect(missing_debug_implementations, reason = "a function has none")]
pub struct MonitorParts<R> {
    /// The broker of the process. `None`: the process is a proxy.
    pub broker: Option<Arc<Broker<R>>>,
    /// The proxy of the process.
    pub proxy: Option<WriteMetrics>,
    /// When the process started.
    pub started: SystemTime,
    /// Who can connect.
    pub reach: Reach,
    /// Whether answers have the names of providers; `None`: it depends on who can connect.
    pub names: Option<bool>,
    /// Has a task for each connection.
    pub tasks: TaskTracker,
    /// Cancelled to end.
    pub draining: CancellationToken,
}

/// Answers over HTTP.
#[expect(missing_debug_implementations, reason = "its parts have none")]
pub struct Monitor<R> {
    parts: MonitorParts<R>,
    connections: Connections,
}

impl<R: PluginRunner> Monitor<R> {
    /// A monitor that does not listen yet.
    pub fn new(parts: MonitorParts<R>) -> Self {
        let connections = Connections::new(parts.reach.limits());
        Self { parts, connections }
    }

    fn names_providers(&self) -> bool {
        let MonitorParts { broker, reach, names, .. } = &self.parts;
        let has_rules = || broker.as_ref().is_some_and(|broker| broker.policies.borrow().has_rules());
        names.unwrap_or_else(|| reach.names_providers(has_rules()))
    }

    async fn exposition(&self) -> String {
        let MonitorParts { broker, proxy, started, .. } = &self.parts;
        let mut to = Exposition::default();
        if let Some(broker) = broker {
            write_broker(broker, self.names_providers(), &mut to).await;
        }
        if let Some(write) = proxy {
            write(&mut to);
        }
        write_own(*started, &mut to);
        to.into_text()
    }

    async fn checks(&self) -> Checks {
        match &self.parts.broker {
            Some(broker) => broker.checks().await,
            None => Checks { parts: vec![("proxy", None)], providers: BTreeMap::new() },
        }
    }

    /// Why a provider is not ready. The outer `None`: no provider has this name.
    async fn provider_check(&self, name: &str) -> Option<Option<Reason>> {
        let (checks, _) = self.parts.broker.as_ref()?.provider_checks(Some(name)).await;
        checks.get(name).copied()
    }

    /// Accepts connections until the broker drains.
    pub async fn run(self: Arc<Self>, listener: MonitorListener) {
        let draining = self.parts.draining.clone();
        let accepting = async {
            loop {
                let accepted = match &listener {
                    Either::Left(tcp) => {
                        tcp.accept().await.map(|(of, from)| (Either::Left(of), Some(from.ip())))
                    }
                    Either::Right(unix) => unix.accept().await.map(|(of, _)| (Either::Right(of), None)),
                };
                match accepted {
                    Ok((stream, from)) => self.serve(stream, from),
                    Err(error) => {
                        warn!(%error, "a connection to the metrics cannot be accepted");
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        draining.run_until_cancelled(accepting).await;
    }

    fn serve(self: &Arc<Self>, stream: Either<TcpStream, UnixStream>, from: Option<IpAddr>) {
        let Some(connection) = self.connections.admit(from) else {
            return debug!("a connection to the metrics was closed: all other connections are in use");
        };
        let monitor = Arc::clone(self);
        self.parts.tasks.spawn(async move {
            let (monitor, connection) = (&monitor, &connection);
            let answered = |request: Request<Incoming>| async move {
                connection.answer(answer(monitor, &request)).await
            };
            // Without an answer in time, the connection is closed.
            let exchange = timeout(EXCHANGE, serve(stream, answered));
            let _ended = connection.displaced.run_until_cancelled(exchange).await;
        });
    }
}

async fn serve<A: Future<Output = Response<Full<Bytes>>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Request<Incoming>) -> A,
) {
    let service = service_fn(|request| answer(request).map(Ok::<_, Infallible>));
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        debug!(%error, "a connection to the metrics ended");
    }
}

async fn answer<R: PluginRunner, B>(monitor: &Monitor<R>, request: &Request<B>) -> Response<Full<Bytes>> {
    if let Some(refusal) = foreign_host(monitor.parts.reach, request.headers()) {
        return plain(StatusCode::FORBIDDEN, refusal);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let with_names = monitor.names_providers();
    match request.uri().path() {
        "/metrics" => response(StatusCode::OK, Exposition::CONTENT_TYPE, monitor.exposition().await),
        // Says that the runtime works. Plugins, issuers and the hub have no part in it.
        "/livez" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => {
            let query = request.uri().query().filter(|_| with_names).unwrap_or_default();
            let mut checks = monitor.checks().await;
            if !with_names {
                checks.merge_providers();
            }
            report(checks.is_ready(&excluded(query)), &shown(&checks))
        }
        path => match path.strip_prefix("/readyz/").map(decoded) {
            Some(name) => match monitor.provider_check(&name).await.filter(|_| with_names) {
                Some(reason) => report(reason.is_none(), &check(reason)),
                None => plain(StatusCode::NOT_FOUND, "no such provider\n"),
            },
            None => plain(StatusCode::NOT_FOUND, "try /metrics, /livez, /readyz or /readyz/PROVIDER\n"),
        },
    }
}

/// The answer to a request that a web page could make a browser send, by a name that it resolves to the address of this
/// listener. A request without the header does not come from a browser.
fn foreign_host(reach: Reach, headers: &HeaderMap) -> Option<&'static str> {
    let host = headers.get(HOST)?.to_str().unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let address = name.parse::<IpAddr>();
    let (is_ours, refusal) = match reach {
        Reach::Admitted => return None,
        Reach::Machine => (
            address.is_ok_and(|address| address.is_loopback()),
            "the Host header must be a loopback address\n",
        ),
        Reach::Network => (address.is_ok(), "the Host header must be an IP address\n"),
    };
    (!is_ours && name != "localhost").then_some(refusal)
}

/// The providers in `exclude=NAME&exclude=NAME`.
fn excluded(query: &str) -> Vec<String> {
    query.split('&').filter_map(|pair| pair.strip_prefix("exclude=")).map(decoded).collect()
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn shown(checks: &Checks) -> Value {
    let providers: Map<_, _> =
        checks.providers.iter().map(|(name, reason)| (name.to_string(), check(*reason))).collect();
    let parts = checks.parts.iter().map(|(name, reason)| ((*name).to_owned(), check(*reason)));
    Value::Object(parts.chain([("providers".to_owned(), Value::Object(providers))]).collect())
}

fn check(reason: Option<Reason>) -> Value {
    match reason {
        None => json!({"ready": true}),
        Some(reason) => json!({"ready": false, "reason": reason.name()}),
    }
}

fn report(is_ready: bool, body: &Value) -> Response<Full<Bytes>> {
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response(status, JSON, format!("{body}\n"))
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    response(status, TEXT, text.to_owned())
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
