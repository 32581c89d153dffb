//! HTTP/2 with every limit set.

use hyper::{rt::Executor, server::conn::http2};
use hyper_util::rt::TokioTimer;
use tokio_util::task::TaskTracker;

/// Concurrent requests on one connection.
pub(crate) const STREAMS: u32 = 1024;
/// Streams that the peer opened and reset before the broker accepted them ("rapid reset").
const PENDING_RESETS: usize = 20;
/// Streams that the broker reset because of an error of the peer.
const ERROR_RESETS: usize = 64;
/// Bytes of the headers of a request.
pub(crate) const HEADERS: u32 = 8 * 1024;
/// Bytes that wait to be sent on one stream.
const SEND_BUFFER: usize = 64 * 1024;
/// Maximum size of a request in bytes.
pub const REQUEST: usize = 256 * 1024;
/// Bytes that the peer may send ahead, on one stream and on the whole connection. At least one request.
pub(crate) const STREAM_WINDOW: u32 = 256 * 1024;
pub(crate) const CONNECTION_WINDOW: u32 = 1024 * 1024;
pub(crate) const FRAME: u32 = 16 * 1024;

/// hyper's connections with these limits, whose tasks are on `tasks`.
pub(crate) fn http2(tasks: TaskTracker) -> http2::Builder<TrackedExecutor> {
    let mut builder = http2::Builder::new(TrackedExecutor(tasks));
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

/// Spawns hyper's tasks on the tracker, so that the drain waits for them.
#[derive(Clone, Debug)]
pub(crate) struct TrackedExecutor(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for TrackedExecutor {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
