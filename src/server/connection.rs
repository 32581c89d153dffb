//! One connection: HTTP/2 with every limit set.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::pin,
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio_util::{either::Either, future::FutureExt as _, sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, service::Routes};
use tower::Service as _;
use tracing::debug;

use super::{
    authority::AuthorityFilter,
    follow::WatchSlots,
    handshake::HandshakeDeadline,
    peer::{Peer, PeerPolicy},
    status,
};

/// From accept to the peer's first SETTINGS frame.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Requests under way at a time on one connection.
const STREAMS: u32 = 1024;
/// Streams that the peer opened and reset before we looked at them ("rapid reset").
const PENDING_RESETS: usize = 20;
/// Streams that we reset for a fault of the peer's.
const ERROR_RESETS: usize = 64;
/// Bytes of a request's headers.
const HEADERS: u32 = 16 * 1024;
/// Bytes that wait to be sent on one stream.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes that the peer may send ahead, on one stream and in all: a request has at most 256 KiB.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const FRAME: u32 = 16 * 1024;

/// What all connections share.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    pub(super) routes: Routes,
    pub(super) policy: PeerPolicy,
    pub(super) watches: usize,
    pub(super) tasks: TaskTracker,
    pub(super) draining: CancellationToken,
}

impl Connections {
    /// Serves `stream` until the peer is done or the broker drains.
    pub(super) async fn serve(self, stream: UnixStream, peer: Peer) {
        // A token of its own: every poll of a connection locks its token.
        let draining = self.draining.child_token();
        let builder = limits(TrackedExecutor(self.tasks.clone()));
        let io = TokioIo::new(AuthorityFilter::new(HandshakeDeadline::new(stream, HANDSHAKE)));
        let mut connection = pin!(builder.serve_connection(
            io,
            PeerService { watches: WatchSlots::new(self.watches), connections: self, peer }
        ));
        let ended = if let Some(ended) = connection.as_mut().with_cancellation_token(&draining).await {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            connection.await
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
        // No pings: on a Unix socket the kernel tells when a peer is gone, and hyper pays for them with a lock and a
        // look at the clock for every frame, a tenth of the requests per second.
        .keep_alive_interval(None)
        .max_concurrent_streams(STREAMS)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// Puts the peer into each request, or refuses it.
struct PeerService {
    connections: Connections,
    watches: WatchSlots,
    peer: Peer,
}

impl Service<Request<Incoming>> for PeerService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        <Routes as tower::Service<Request<Incoming>>>::Future,
        Ready<Result<Response<Body>, Infallible>>,
    >;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if !self.connections.policy.allows(&self.peer) {
            return Either::Right(ready(Ok(status::peer_denied(&self.peer).into_http())));
        }
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.watches.clone());
        Either::Left(self.connections.routes.clone().call(request))
    }
}

/// hyper's tasks are on the tracker too: drain waits for them.
#[derive(Clone, Debug)]
struct TrackedExecutor(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for TrackedExecutor {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
