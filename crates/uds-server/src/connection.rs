//! One connection, from its first byte to its end.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use h2_unix_authority::AuthorityFilter;
use hyper::{rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};
use tokio_util::{future::FutureExt as _, task::TaskTracker};
use tracing::debug;

use crate::{
    exchange::{Exchanges, exchange},
    linux::Peer,
    program::Program,
    stream::Noted,
    traffic::{Traffic, WINDOW},
};

const STREAMS: u32 = 1024;
/// Streams that the peer opened and reset before the broker accepted them ("rapid reset").
const PENDING_RESETS: usize = 20;
/// Streams that the broker reset because of an error of the peer.
const ERROR_RESETS: usize = 64;
const HEADERS: u32 = 8 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
const FRAME: u32 = 16 * 1024;

/// Open watches from which on a connection collects messages: news wake them faster than it writes single ones.
const MANY: usize = 8;

/// Time from the beginning of a drain to GOAWAY on a connection on which no call begins.
const LAST_CALL: Duration = Duration::from_millis(200);
/// Time after GOAWAY for calls in progress to end.
const CLOSE_GRACE: Duration = Duration::from_secs(3);
/// Time after GOAWAY for a peer without calls to acknowledge it.
const IDLE_CLOSE_GRACE: Duration = Duration::from_millis(500);

/// Serves `stream` until the peer is done, makes no call, stops reading, another connection needs the place, or the server
/// drains. What hyper spawns is on `tasks`.
pub(crate) async fn serve<P: Program>(
    stream: UnixStream,
    peer: Peer,
    exchanges: Arc<Exchanges<P>>,
    tasks: TaskTracker,
) {
    let Exchanges { program, traffic, watches, .. } = &*exchanges;
    let io = TokioIo::new(AuthorityFilter::new(Noted::new(stream, traffic)));
    let served = Arc::clone(&exchanges);
    // Boxed, because hyper reserves the size of the larger of this future and a waiting answer.
    let service = service_fn(move |request| Box::pin(exchange(Arc::clone(&served), request)));
    let mut connection = pin!(http2(tasks).serve_connection(io, service));
    let mut gathered = false;
    // A rotation wakes all watches, and each of them wakes the connection. The connection yields once, so that the other
    // ready tasks add their messages first, and one system call writes all of them.
    let gathering = poll_fn(|cx| {
        gathered = !gathered && watches.open() >= MANY;
        if gathered {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut polled = poll(connection.as_mut(), traffic, cx);
        if polled.is_pending() && traffic.is_corked() && traffic.calls() == 0 {
            traffic.uncork();
            polled = poll(connection.as_mut(), traffic, cx);
        }
        // After the first answer, so that its caller does not wait for it.
        if polled.is_pending() && traffic.has_answered() {
            program.settle(&exchanges.peer);
        }
        polled
    });
    let mut ended = gathering.with_cancellation_token(&traffic.end).await;
    if ended.is_none() && traffic.stalled.load(Ordering::Relaxed) {
        return;
    }
    if ended.is_none() && watches.draining.is_cancelled() {
        ended = until_last_call(connection.as_mut(), traffic).await;
    }
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        let grace = if traffic.calls() > 0 { CLOSE_GRACE } else { IDLE_CLOSE_GRACE };
        ended = timeout(grace, poll_fn(|cx| poll(connection.as_mut(), traffic, cx))).await.ok();
    }
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => debug!(uid = peer.uid, pid = peer.pid, %error, "connection ended"),
        None => debug!(uid = peer.uid, pid = peer.pid, "a peer did not end its connection; it is closed"),
    }
}

/// Polls the connection, which may read once: hyper would read on after each request that it accepts, and hold many half done.
fn poll<C: Future>(connection: Pin<&mut C>, traffic: &Traffic, cx: &mut Context<'_>) -> Poll<C::Output> {
    traffic.has_read.store(false, Ordering::Relaxed);
    connection.poll(cx)
}

/// Serves on until the next call begins, or none has begun in time. GOAWAY is then sent while the peer waits for an
/// answer. A peer that gets it just before it sends its call, as one that has just connected, would lose that call.
async fn until_last_call<C: Future>(mut connection: Pin<&mut C>, traffic: &Traffic) -> Option<C::Output> {
    let begun = traffic.begun();
    let next_call = poll_fn(|_| if traffic.begun() == begun { Poll::Pending } else { Poll::Ready(()) });
    tokio::select! {
        biased;
        ended = poll_fn(|cx| poll(connection.as_mut(), traffic, cx)) => Some(ended),
        () = next_call => None,
        () = sleep(LAST_CALL) => None,
    }
}

fn http2(tasks: TaskTracker) -> http2::Builder<TrackedExecutor> {
    let mut builder = http2::Builder::new(TrackedExecutor(tasks));
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .auto_date_header(false)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
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

/// Spawns hyper's tasks on the tracker, so that the drain waits for them.
#[derive(Clone, Debug)]
struct TrackedExecutor(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for TrackedExecutor {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

#[cfg(test)]
mod tests;
