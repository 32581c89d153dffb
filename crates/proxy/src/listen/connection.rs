//! One connection, from its first request to its end.

use std::{
    error::Error,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    rt::{Executor, Read, Write, bounds::Http2ServerConnExec},
    server::conn::{http1, http2},
    service::{HttpService, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::headers::Hidden;

use super::{
    Answer, Serve,
    watched::{InProgress, Progress, Watched},
};

/// Bytes of the line and the headers of a request.
const HEADERS: u32 = 64 * 1024;
const STREAMS: u32 = 100;
/// Bytes of a request body that the peer may send ahead.
const WINDOW: u32 = 64 * 1024;
/// All streams together: a body that nothing reads stops no other one. A window that adapts would be the same for one stream
/// and for all of them.
const WINDOWS: u32 = STREAMS * WINDOW;
/// Bytes of one answer that the peer has not read, for HTTP/2.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that the peer reset before they were accepted, and those that were reset because of an error of the peer.
const PENDING_RESETS: usize = 20;
const ERROR_RESETS: usize = 64;

/// Time from the beginning of a drain to GOAWAY or the end of a connection on which no request begins. A client that has just
/// connected would lose its request.
const LAST_REQUEST: Duration = Duration::from_millis(200);
/// Time for requests in progress to end when the proxy drains: those that last are ended before.
const DRAIN: Duration = Duration::from_secs(12);
/// Time for a peer without requests to end its connection.
const IDLE_CLOSE: Duration = Duration::from_millis(500);

/// Answers the requests of one connection.
pub(super) trait Handler<S: Serve>: Send + Sync + 'static {
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Answer<S>> + Send;
}

/// Serves `stream` until the peer is done, another connection needs the place, the head of a request takes too long, or the
/// proxy drains.
pub(super) fn serve<S: Serve>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    progress: Arc<Progress>,
    is_http1: bool,
    handler: Arc<impl Handler<S>>,
    tasks: TaskTracker,
) -> impl Future<Output = ()> + Send {
    let io = TokioIo::new(Watched::new(stream, &progress));
    let noted = Arc::clone(&progress);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (handler, request_in_progress) = (Arc::clone(&handler), noted.request());
        if let Some(why) = request_in_progress.ambiguous() {
            request.extensions_mut().insert(Hidden(why));
        }
        async move {
            let mut answer = Box::pin(handler.handle(request)).await;
            let is_last = is_http1 && request_in_progress.is_last();
            if is_last && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(guarded::<S>(answer, request_in_progress))
        }
    });
    // What TLS has agreed on counts: a peer that sends something else is wrong.
    let connection: Pin<Box<dyn Graceful + Send>> = if is_http1 {
        Box::pin(http1().serve_connection(io, service).with_upgrades())
    } else {
        Box::pin(http2(tasks).serve_connection(io, service))
    };
    drive(connection, progress)
}

/// Runs a connection to its end. It is in a box because the future of an async function has room for each move of a value, and a
/// proxy has thousands of connections.
async fn drive(mut connection: Pin<Box<dyn Graceful + Send>>, progress: Arc<Progress>) {
    let end = progress.seat.end();
    let mut ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = end.cancelled() => None,
        () = progress.is_late() => return debug!("a peer sent no complete request in time; its connection was closed"),
    };
    if ended.is_none() {
        let begun = progress.begun();
        let next = poll_fn(|_| if progress.begun() == begun { Poll::Pending } else { Poll::Ready(()) });
        ended = tokio::select! {
            biased;
            ended = connection.as_mut() => Some(ended),
            () = next => None,
            () = sleep(LAST_REQUEST) => None,
        };
    }
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        ended = timeout(IDLE_CLOSE, connection.as_mut()).await.ok();
    }
    // A peer sends requests until it has read GOAWAY.
    if ended.is_none() && !progress.is_idle() {
        ended = timeout(DRAIN, connection.as_mut()).await.ok();
    }
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => debug!(error = &error as &dyn Error, "a connection ended"),
        None => debug!("a peer did not end its connection; it was closed"),
    }
}

/// A connection that can be asked to end after its requests.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S, B> Graceful for http1::UpgradeableConnection<I, S>
where
    Self: Future<Output = hyper::Result<()>>,
    S: HttpService<Incoming, ResBody = B, Error: Into<Box<dyn Error + Send + Sync>>>,
    I: Read + Write + Unpin,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, B> Graceful for http2::Connection<I, S, Tracked>
where
    Self: Future<Output = hyper::Result<()>>,
    S: HttpService<Incoming, ResBody = B, Future: 'static, Error: Into<Box<dyn Error + Send + Sync>>>,
    I: Read + Write + Unpin,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    Tracked: Http2ServerConnExec<S::Future, B>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

pub(super) fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The reading of heads has its own time limit: hyper's would end connections that wait for their next request.
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    builder.max_buf_size(HEADERS as usize).max_header_size(HEADERS as usize).auto_date_header(false);
    builder
}

fn http2(tasks: TaskTracker) -> http2::Builder<Tracked> {
    let mut builder = http2::Builder::new(Tracked(tasks));
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOWS)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .auto_date_header(false);
    builder
}

/// The answer, with its request in progress until its body ends, or the connection if it becomes a tunnel.
fn guarded<S: Serve>(
    answer: Answer<S>,
    request: InProgress,
) -> Response<Guarded<http_body_util::Either<http_body_util::Full<Bytes>, S::Body>>> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        request.becomes_tunnel();
        return answer.map(|body| Guarded { body: Box::pin(body), _request: None });
    }
    answer.map(|body| Guarded { body: Box::pin(body), _request: Some(request) })
}

/// A body, and what ends with it.
struct Guarded<B> {
    body: Pin<Box<B>>,
    _request: Option<InProgress>,
}

impl<B: Body> Body for Guarded<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.body.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Spawns hyper's tasks on the tracker, so that the drain waits for them.
#[derive(Clone, Debug)]
struct Tracked(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio_util::sync::CancellationToken;

    use super::{super::tests::seat, *};

    /// A connection whose peer sends a request after GOAWAY, which it has not read yet.
    struct Late<F> {
        asked: Arc<AtomicBool>,
        request: Pin<Box<F>>,
    }

    impl<F: Future<Output = ()>> Future for Late<F> {
        type Output = hyper::Result<()>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            if !self.asked.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
            self.request.as_mut().poll(cx).map(Ok)
        }
    }

    impl<F: Future<Output = ()>> Graceful for Late<F> {
        fn graceful_shutdown(self: Pin<&mut Self>) {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_sent_before_its_peer_read_of_the_end_is_answered() {
        let draining = CancellationToken::new();
        let progress = Progress::new(seat(&draining), false);
        drop(progress.request());
        let (answered, noted) = (Arc::new(AtomicBool::new(false)), Arc::clone(&progress));
        let done = Arc::clone(&answered);
        let request = Box::pin(async move {
            sleep(IDLE_CLOSE / 2).await;
            let request = noted.request();
            sleep(IDLE_CLOSE * 4).await;
            done.store(true, Ordering::Relaxed);
            drop(request);
        });
        draining.cancel();
        drive(Box::pin(Late { asked: Arc::default(), request }), progress).await;
        assert!(answered.load(Ordering::Relaxed));
    }
}
