//! One connection: one request and its answer.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use bytes::Bytes;
use credbroker_proto::Reason;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST},
};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::Monitor;
use crate::{exec::PluginRunner, metrics::Exposition, server::ready::Checks};

/// The most bytes of the head of a request.
const HEAD: usize = 8 * 1024;
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers one request.
pub(super) async fn exchange<R: PluginRunner>(
    monitor: Arc<Monitor<R>>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    is_loopback: bool,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let monitor = Arc::clone(&monitor);
        async move { Ok::<_, Infallible>(answer(&monitor, &request, is_loopback).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD)
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
    use super::*;

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
