//! A collector that takes spans over gRPC. It decodes them itself, with the fields of opentelemetry-proto that the tests
//! read.

use std::{collections::BTreeMap, convert::Infallible, fmt::Write as _, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};

/// The kind of the span of a server.
pub(super) const SERVER: i32 = 2;
/// The status of a span that failed.
const ERROR: i32 = 2;

#[derive(Debug)]
pub(super) struct Collector {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Bytes>,
    /// Spans that no test has taken.
    pending: Vec<Span>,
    seen: Vec<Bytes>,
    served: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, (sender, requests)) = (listener.local_addr().unwrap(), mpsc::unbounded_channel());
        let served = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let sender = sender.clone();
                let service = service_fn(move |request| take(request, sender.clone()));
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, requests, pending: Vec::new(), seen: Vec::new(), served }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next `N` spans, in the order of their ends.
    pub(super) async fn spans<const N: usize>(&mut self) -> [Span; N] {
        while self.pending.len() < N {
            let request = self.requests.recv().await.unwrap();
            let decoded = Export::decode(request.clone()).unwrap();
            self.seen.push(request);
            let scopes = decoded.resource_spans.into_iter().flat_map(|of_resource| of_resource.scope_spans);
            self.pending.extend(scopes.flat_map(|scope| scope.spans));
        }
        self.pending.sort_by_key(|span| span.end);
        assert_eq!(self.pending.len(), N, "{:?}", self.pending);
        std::mem::take(&mut self.pending).try_into().unwrap()
    }

    /// The name of the service that sent the last spans.
    pub(super) fn service(&self) -> String {
        let last = Export::decode(self.seen.last().unwrap().clone()).unwrap();
        let resource = last.resource_spans[0].resource.clone().unwrap();
        values(&resource.attributes)["service.name"].clone()
    }

    /// Whether any byte sequence of the requests was this.
    pub(super) fn has_seen(&self, text: &str) -> bool {
        self.seen.iter().any(|request| request.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

/// Takes a request and answers that all of its spans are stored.
async fn take(
    request: http::Request<Incoming>,
    sender: mpsc::UnboundedSender<Bytes>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, hyper::Error> {
    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let body = request.into_body().collect().await?.to_bytes();
    // The frame is not compressed, and is all of the body.
    assert_eq!(
        (body[0], usize::try_from(u32::from_be_bytes(body[1..5].try_into().unwrap())).unwrap()),
        (0, body.len() - 5)
    );
    sender.send(body.slice(5..)).ok();
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let empty = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) });
    Ok(Response::builder().header("content-type", "application/grpc").body(empty).unwrap())
}

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes, tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes, tag = "2")]
    id: Vec<u8>,
    #[prost(bytes, tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes, tag = "2")]
    to: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, tag = "1")]
    text: String,
}

impl Span {
    pub(super) fn trace(&self) -> String {
        hex(&self.trace_id)
    }

    pub(super) fn id(&self) -> String {
        hex(&self.id)
    }

    pub(super) fn parent(&self) -> String {
        hex(&self.parent)
    }

    /// The spans of the runs that it waited for.
    pub(super) fn links(&self) -> Vec<String> {
        self.links.iter().map(|link| hex(&link.to)).collect()
    }

    pub(super) fn attributes(&self) -> BTreeMap<String, String> {
        values(&self.attributes)
    }

    pub(super) fn attribute(&self, name: &str) -> String {
        self.attributes()[name].clone()
    }

    /// The message of a failure; empty: the span has not failed.
    pub(super) fn failed(&self) -> String {
        let status = self.status.clone().filter(|status| status.code == ERROR);
        status.map(|status| status.message).unwrap_or_default()
    }
}

fn values(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |value: &Option<AnyValue>| value.clone().unwrap_or_default().text;
    attributes.iter().map(|attribute| (attribute.key.clone(), value(&attribute.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
