//! One connection: one request and its answer.

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

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
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::{Monitor, places::MonitorPlace};
use crate::readiness::Checks;
use credbroker_observe::metrics::Exposition;
use credbroker_runner::PluginRunner;

/// The most bytes of the head of a request.
const HEAD: usize = 8 * 1024;
/// How long a peer has to send the head of its request.
const HEAD_TIME: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers one request.
pub(super) async fn exchange<R: PluginRunner>(
    monitor: Arc<Monitor<R>>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    place: Arc<MonitorPlace>,
    is_loopback: bool,
) {
    let answer = move |request: Request<Incoming>| {
        let (monitor, place) = (Arc::clone(&monitor), Arc::clone(&place));
        async move { place.answer(answer(&monitor, &request, is_loopback)).await }
    };
    serve(stream, answer).await;
}

/// Serves one request with `answer`.
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
    let (readiness, with_names) = (&monitor.parts.health, monitor.names_providers(is_loopback));
    match request.uri().path() {
        "/metrics" => response(StatusCode::OK, Exposition::CONTENT_TYPE, monitor.gather(with_names).await),
        // Says that the runtime works. Plugins, issuers and the hub have no part in it.
        "/livez" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => {
            let query = request.uri().query().filter(|_| with_names).unwrap_or_default();
            let mut checks = readiness.all().await;
            if !with_names {
                checks.merge_providers();
            }
            report(checks.is_ready(&excluded(query)), &shown(&checks))
        }
        path => match path.strip_prefix("/readyz/").map(decoded) {
            Some(name) => {
                let (checks, _) = readiness.providers(Some(&name)).await;
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

/// A part of a URL as its author meant it.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.split_at_checked(2).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|(digits, after)| {
            let digits = str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Each byte makes the next one possible, but not more time.
    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
    async fn a_head_has_one_second_however_it_arrives() {
        for head in [&b""[..], b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: "] {
            let (mut client, server) = tokio::io::duplex(1024);
            let begun = tokio::time::Instant::now();
            let serving = serve(server, |_| async { panic!("there is no request") });
            let sent = async {
                client.write_all(head).await.unwrap();
                while client.write_all(if head.is_empty() { b"" } else { b"x" }).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::select! {
                () = serving => {}
                () = sent => {}
            }
            assert_eq!(begun.elapsed().as_millis() / 10, 100);
        }
    }

    #[test]
    fn a_name_that_a_page_chose_is_not_local() {
        let local = |host: &str| is_local(&HeaderMap::from_iter([(HOST, host.parse().unwrap())]));
        for host in ["127.0.0.1:9464", "127.0.0.1", "localhost", "localhost:1", "[::1]:9464", "[::1]"] {
            assert!(local(host), "{host}");
        }
        for host in
            ["", "example.com", "example.com:9464", "10.0.0.1", "127.0.0.1.example.com", "localhost.:1"]
        {
            assert!(!local(host), "{host}");
        }
        assert!(is_local(&HeaderMap::new()));
    }

    #[test]
    fn names_in_urls_may_be_escaped() {
        assert_eq!(decoded("a%2Fb%20%C3%A9"), "a/b é");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(excluded("verbose&exclude=a%26b&exclude=c"), ["a&b", "c"]);
    }
}
