//! Metrics and health over HTTP, for Prometheus and for probes. It answers with stable reasons, and never with a message,
//! which may have the output of a plugin. With access rules, answers on a loopback address have no names of providers.

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
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

use super::{broker::Broker, health::Checks, metrics::exposition};
use credbroker_observe::metrics::Exposition;
use credbroker_runner::PluginRunner;

/// The most bytes of the head of a request.
const HEAD: usize = 8 * 1024;
/// How long a peer has to send the head of its request.
const HEAD_TIME: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const CONNECTIONS: usize = 16;
/// How long a connection lives: one request.
const EXCHANGE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// Where the monitor listens.
#[derive(Debug)]
pub enum MonitorListener {
    /// A loopback address. Browsers of this machine can reach it.
    Loopback(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// Answers over HTTP.
#[derive(Debug)]
pub struct Monitor<R> {
    broker: Arc<Broker<R>>,
    /// Whether answers have the names of providers; `None`: unless there are rules and the address is a loopback one.
    names: Option<bool>,
    connections: Connections,
    tasks: TaskTracker,
    draining: CancellationToken,
}

impl<R: PluginRunner> Monitor<R> {
    /// A monitor of `broker` that does not listen yet, and shows `names` of providers as configured.
    pub fn new(
        broker: Arc<Broker<R>>,
        names: Option<bool>,
        tasks: TaskTracker,
        draining: CancellationToken,
    ) -> Self {
        Self { broker, names, connections: Connections::default(), tasks, draining }
    }

    /// Whether answers have the names of providers. The mode of a Unix socket admits the operator; a process of any user
    /// can connect to a loopback address.
    fn names_providers(&self, is_loopback: bool) -> bool {
        self.names.unwrap_or_else(|| !is_loopback || !self.broker.policies.borrow().has_rules())
    }

    /// Accepts connections until the broker drains.
    pub async fn run(self: Arc<Self>, listener: MonitorListener) {
        let draining = self.draining.clone();
        let accepting = async {
            loop {
                let accepted = match &listener {
                    MonitorListener::Loopback(listener) => {
                        listener.accept().await.map(|(of, _)| Either::Left(of))
                    }
                    MonitorListener::Unix(listener) => {
                        listener.accept().await.map(|(of, _)| Either::Right(of))
                    }
                };
                match accepted {
                    Ok(stream) => self.serve(stream),
                    Err(error) => {
                        warn!(%error, "a connection to the metrics cannot be accepted");
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        draining.run_until_cancelled(accepting).await;
    }

    fn serve(self: &Arc<Self>, stream: Either<TcpStream, UnixStream>) {
        let Some(connection) = self.connections.admit() else {
            return debug!("a connection to the metrics was closed: all others are being answered");
        };
        let (monitor, is_loopback) = (Arc::clone(self), matches!(stream, Either::Left(_)));
        self.tasks.spawn(async move {
            let (monitor, connection) = (&monitor, &connection);
            let answered = |request: Request<Incoming>| async move {
                connection.answer(answer(monitor, &request, is_loopback)).await
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

async fn answer<R: PluginRunner, B>(
    monitor: &Monitor<R>,
    request: &Request<B>,
    is_loopback: bool,
) -> Response<Full<Bytes>> {
    if is_loopback && !is_local(request.headers()) {
        // A web page could make a browser on this machine ask, by a name that it resolves to a loopback address.
        return plain(StatusCode::FORBIDDEN, "the Host header must be a loopback address\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let (broker, with_names) = (&monitor.broker, monitor.names_providers(is_loopback));
    match request.uri().path() {
        "/metrics" => {
            response(StatusCode::OK, Exposition::CONTENT_TYPE, exposition(broker, with_names).await)
        }
        // Says that the runtime works. Plugins, issuers and the hub have no part in it.
        "/livez" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => {
            let query = request.uri().query().filter(|_| with_names).unwrap_or_default();
            let mut checks = broker.checks().await;
            if !with_names {
                checks.merge_providers();
            }
            report(checks.is_ready(&excluded(query)), &shown(&checks))
        }
        path => match path.strip_prefix("/readyz/").map(decoded) {
            Some(name) => {
                let (checks, _) = broker.provider_checks(Some(&name)).await;
                match checks.get(name.as_str()).filter(|_| with_names) {
                    Some(reason) => report(reason.is_none(), &check(*reason)),
                    None => plain(StatusCode::NOT_FOUND, "no such provider\n"),
                }
            }
            None => plain(StatusCode::NOT_FOUND, "try /metrics, /livez, /readyz or /readyz/PROVIDER\n"),
        },
    }
}

/// Whether the request names this machine. A request without the header does not come from a browser.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
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

/// The open connections, the oldest one first. No process can keep all places: what waits for its peer gives way.
#[derive(Debug, Default)]
struct Connections(Mutex<Vec<Arc<OpenConnection>>>);

#[derive(Debug, Default)]
struct OpenConnection {
    /// Its request is here, and its answer is not made yet.
    is_answered: AtomicBool,
    /// Cancelled when another connection gets its place.
    displaced: CancellationToken,
}

impl Connections {
    /// A new connection, which is open until it is dropped. If there is no place, the oldest connection that waits for its
    /// peer is displaced: it has not sent a whole head, or does not read its answer. `None`: all are being answered.
    fn admit(&self) -> Option<Arc<OpenConnection>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| Arc::strong_count(connection) > 1);
        if open.len() >= CONNECTIONS {
            let waits = |connection: &Arc<OpenConnection>| !connection.is_answered.load(Ordering::Relaxed);
            let oldest = open.iter().position(waits)?;
            open.remove(oldest).displaced.cancel();
        }
        let connection = Arc::<OpenConnection>::default();
        open.push(Arc::clone(&connection));
        Some(connection)
    }
}

impl OpenConnection {
    /// Makes an answer, for which the connection keeps its place.
    async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        self.is_answered.store(true, Ordering::Relaxed);
        let answer = answer.await;
        self.is_answered.store(false, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests;
