//! One connection: HTTP/2 with every limit set.

use std::{convert::Infallible, future::poll_fn, mem, pin::pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header::CONTENT_TYPE, request::Parts};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::UnixStream, sync::OwnedSemaphorePermit, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, body::Body};
use tower::Service as _;
use tracing::debug;

use super::{
    access::Access,
    answer::Answer,
    asked,
    authority::AuthorityFilter,
    credentials::GET,
    follow::WatchSlots,
    handshake::HandshakeDeadline,
    places::Full,
    preencoded::{self, Preencoded},
    question::Question,
    service::Services,
    status,
    tally::tally,
    traffic::{Call, Noted, Traffic, Watchdog},
};
use crate::metrics::Rpc;

/// Time from accept to the end of the peer's first SETTINGS frame.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Concurrent requests on one connection.
const STREAMS: u32 = 1024;
/// Streams that the peer opened and reset before the broker accepted them ("rapid reset").
const PENDING_RESETS: usize = 20;
/// Streams that the broker reset because of an error of the peer.
const ERROR_RESETS: usize = 64;
/// Bytes of the headers of a request.
const HEADERS: u32 = 16 * 1024;
/// Bytes that wait to be sent on one stream.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes that the peer may send ahead, on one stream and on the whole connection. A request has at most 256 KiB.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const FRAME: u32 = 16 * 1024;
/// Time after GOAWAY for calls in progress to end.
const FAREWELL: Duration = Duration::from_secs(3);
/// Time after GOAWAY for a peer without calls to acknowledge it.
const IDLE_FAREWELL: Duration = Duration::from_millis(500);
/// Prefix of the methods that report whether the broker works.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// Path of a streaming method that this module counts as a watch. The broker's own services count theirs.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Prefix of more such methods. Their requests are streams too.
const REFLECTION: &str = "/grpc.reflection.";

const GRPC: &str = "application/grpc";

/// Why the broker refuses every request of a connection. Decided once, when the connection is accepted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// The policy gives the peer no right.
    Denied,
    /// The peer is a process of a plugin run.
    Descendant,
    /// There is no place for another connection.
    Full(Full),
}

/// State that all connections share.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    pub(super) services: Services,
    pub(super) watches: usize,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
    pub(super) watchdog: Watchdog,
}

impl Connections {
    /// Serves `stream` until the peer is done, stops reading, another connection needs the place, or the broker drains.
    pub(super) async fn serve(
        self,
        stream: UnixStream,
        access: Arc<Access>,
        traffic: Arc<Traffic>,
        refusal: Option<Refusal>,
    ) {
        let end = traffic.end().clone();
        let peer = access.peer;
        self.watchdog.watch(&traffic);
        let builder = limits(TrackedExecutor(self.tasks.clone()));
        let io = HandshakeDeadline::new(Noted::new(stream, &traffic), HANDSHAKE);
        let io = TokioIo::new(AuthorityFilter::new(io));
        let watches = WatchSlots::new(self.watches);
        let exchanges = Arc::new(Exchanges {
            connections: self,
            watches,
            access,
            refusal,
            traffic: Arc::clone(&traffic),
        });
        let served = Arc::clone(&exchanges);
        // Boxed, because hyper reserves the size of the larger of this future and a waiting answer.
        let service = service_fn(move |request| Box::pin(exchange(Arc::clone(&served), request)));
        let mut connection = pin!(builder.serve_connection(io, service));
        let mut gathered = false;
        // A rotation wakes all watches, and each of them wakes the connection. The connection yields once, so that the
        // other ready tasks add their messages first, and one system call writes all of them.
        let gathering = poll_fn(|cx| {
            gathered = !gathered && exchanges.watches.are_many();
            if gathered {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let polled = connection.as_mut().poll(cx);
            // After the first answer, so that its caller does not wait for it.
            if polled.is_pending() && !traffic.is_silent() {
                exchanges.access.settle();
            }
            polled
        });
        let ended = if let Some(ended) =
            tokio_util::future::FutureExt::with_cancellation_token(gathering, &end).await
        {
            ended
        } else if traffic.is_stalled() {
            return;
        } else {
            connection.as_mut().graceful_shutdown();
            let farewell = if traffic.is_busy() { FAREWELL } else { IDLE_FAREWELL };
            let Ok(ended) = timeout(farewell, connection).await else {
                return debug!(
                    uid = peer.uid,
                    pid = peer.pid,
                    "a peer did not end its connection; it is closed"
                );
            };
            ended
        };
        if let Err(error) = ended {
            debug!(uid = peer.uid, pid = peer.pid, %error, "connection ended");
        }
    }
}

fn limits(executor: TrackedExecutor) -> http2::Builder<TrackedExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .auto_date_header(false)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        // No pings: on a Unix socket the kernel reports that a peer is gone. With pings, hyper takes a lock and reads
        // the clock for every frame, which costs a tenth of the requests per second.
        .keep_alive_interval(None)
        .max_concurrent_streams(STREAMS)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// State that the calls of one connection share.
struct Exchanges {
    connections: Connections,
    watches: WatchSlots,
    access: Arc<Access>,
    refusal: Option<Refusal>,
    traffic: Arc<Traffic>,
}

/// One call: waits for room for the answer, reads the request, then calls the service, which finds the peer in the
/// request's extensions.
///
/// Not an `async fn`: its future would hold the arguments twice.
fn exchange(
    shared: Arc<Exchanges>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Answer>, Infallible>> {
    let call = Call::of(&shared.traffic);
    let (admitted, (mut head, body)) = (shared.admit(request.uri().path()), request.into_parts());
    async move {
        // Before the body is read, so that a waiting request holds only what the peer may send ahead.
        shared.room(&mut head.headers).await;
        let question = match admitted {
            Ok((false, slot)) => Question::whole(body, &shared.traffic).await.map(|whole| (whole, slot)),
            Ok((true, slot)) => {
                Ok((Question::stream(body, &shared.traffic, &shared.connections.draining), slot))
            }
            Err(status) => Err(status),
        };
        match question {
            Ok((question, slot)) => match shared.recall(&head, &question) {
                Some(frame) => {
                    shared.connections.services.metrics.requests.answered(Rpc::GET);
                    Ok(whole(Answer::whole(frame, &shared.traffic, call)))
                }
                // Boxed, because a call that waits for room would reserve its space too.
                None => Ok(Box::pin(shared.answer(head, question, call, slot)).await),
            },
            Err(status) => Ok(shared.respond(Rpc::of(head.uri.path()), status.into_http(), call, None)),
        }
    }
}

/// Whether tonic would accept the head of this request. If not, tonic gets the request and refuses it.
fn is_grpc(head: &Parts) -> bool {
    let content = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    head.method == Method::POST && content.is_some_and(|content| content.starts_with(GRPC.as_bytes()))
}

fn whole(answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

impl Exchanges {
    /// Whether the request is a stream of messages, and the watch slot that its answer takes.
    fn admit(&self, path: &str) -> Result<(bool, Option<OwnedSemaphorePermit>), Status> {
        match self.refusal {
            None => {}
            Some(Refusal::Denied) => return Err(self.denied(path)),
            Some(Refusal::Descendant) => return Err(self.refused(path, status::descendant())),
            Some(Refusal::Full(full)) => return Err(status::too_many_connections(full)),
        }
        // The services check more: which verb, and for which credential.
        let is_for_owners = path.starts_with(HEALTH) && self.access.may_ask_for_health();
        if self.access.rights().is_empty() && !is_for_owners {
            return Err(self.denied(path));
        }
        self.traffic.check_bytes().map_err(status::too_many_bytes)?;
        let streams = path.starts_with(REFLECTION);
        let counts = streams || path == HEALTH_WATCH;
        Ok((streams, if counts { Some(self.watches.acquire()?) } else { None }))
    }

    fn denied(&self, path: &str) -> Status {
        self.refused(path, status::peer_denied(self.access.peer.uid, self.access.no_rights()))
    }

    /// Records that the call is denied.
    fn refused(&self, path: &str, status: Status) -> Status {
        asked::refused(&self.connections.services.audit, &self.access, path, &status);
        status
    }

    async fn room(&self, headers: &mut HeaderMap) {
        if self.traffic.has_room() {
            return;
        }
        // A `HeaderMap` reserves space for more headers than a request has, and a thousand requests may wait.
        let few: Box<[_]> = mem::take(headers).into_iter().collect();
        loop {
            let room = Box::pin(self.traffic.room());
            if self.traffic.has_room() {
                self.traffic.pass_on();
                break;
            }
            room.await;
        }
        headers.extend(few);
    }

    /// The framed answer from memory. A cache hit is only a look-up, so it bypasses the services.
    fn recall(&self, head: &Parts, question: &Question) -> Option<Bytes> {
        match question {
            Question::Whole(body) if head.uri.path() == GET => {
                let message = preencoded::message(body).filter(|_| is_grpc(head))?;
                self.connections.services.memory.recall(&self.access, message)
            }
            _ => None,
        }
    }

    /// The answer of a service. Its first message is encoded if it is ready.
    async fn answer(
        &self,
        head: Parts,
        question: Question,
        call: Call,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Response<Answer> {
        let rpc = Rpc::of(head.uri.path());
        let mut request = Request::from_parts(head, question);
        request.extensions_mut().insert(Arc::clone(&self.access));
        request.extensions_mut().insert(self.watches.clone());
        let services = &self.connections.services;
        let is_reflection = request.uri().path().starts_with(REFLECTION);
        let mut routes = if is_reflection { services.reflection() } else { &services.routes }.clone();
        let mut response = routes.call(request).await.unwrap_or_else(|never| match never {});
        Preencoded::put_in_place(&mut response);
        let mut response = self.respond(rpc, response, call, slot);
        poll_fn(|cx| response.body_mut().poll_ahead(cx)).await;
        response
    }

    /// Counts an answer by its headers.
    fn respond(
        &self,
        rpc: Rpc,
        response: Response<Body>,
        call: Call,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Response<Answer> {
        tally(&self.connections.services.metrics, rpc, &self.access.peer, response.headers());
        let draining = self.connections.draining.clone();
        response.map(|body| Answer::new(body, &self.traffic, draining, call, slot))
    }
}

/// Spawns hyper's tasks on the tracker, so that the drain waits for them.
#[derive(Clone, Debug)]
struct TrackedExecutor(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for TrackedExecutor {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// A peer can have a thousand calls in progress.
    #[test]
    fn a_call_is_small() {
        let size = size_of_future(exchange);
        assert!(size <= 512, "{size} bytes");
    }
}
