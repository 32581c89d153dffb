//! The stream of a connection. It has the place of the connection for as long as it lives, also as a tunnel, and knows when
//! the head of a request began, and what hyper hides of it.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use credbroker_uds_server::{Occupied, Seat};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};

use super::wire::{Ambiguous, Wire};

/// How long a peer may take to send the head of a request.
pub(super) const HEAD: Duration = Duration::from_secs(10);

/// What is known about the requests of a connection.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) seat: Arc<Seat>,
    /// Whether bytes between two requests are the beginning of the next one. HTTP/2 has other frames.
    is_http1: bool,
    /// Requests that have begun, and those that have ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Whether the head of a request is being received.
    receives_head: AtomicBool,
    /// The first request that hyper has changed before anything can refuse it.
    ambiguous: OnceLock<Ambiguous>,
    /// Keeps the place of a tunnel in use.
    tunnel: OnceLock<Occupied>,
}

impl Progress {
    pub(super) fn new(seat: Arc<Seat>, is_http1: bool) -> Arc<Self> {
        Arc::new(Self {
            seat,
            is_http1,
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            // A client connects because it has a request.
            receives_head: AtomicBool::new(true),
            ambiguous: OnceLock::new(),
            tunnel: OnceLock::new(),
        })
    }

    /// Notes a request, until what it returns is dropped.
    pub(super) fn request(self: &Arc<Self>) -> InProgress {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.receives_head.store(false, Ordering::Relaxed);
        InProgress { number, occupied: Some(self.seat.request()), progress: Arc::clone(self) }
    }

    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.ended.load(Ordering::Relaxed) == self.begun()
    }

    fn has_read(&self, wire: &mut Wire, bytes: &[u8]) {
        if !self.is_http1 || bytes.is_empty() {
            return;
        }
        if self.tunnel.get().is_some() {
            // What goes through a tunnel is not read, and not kept.
            *wire = Wire::default();
            return;
        }
        if let Some(ambiguous) = wire.read(bytes) {
            // Only the first is returned.
            let _first = self.ambiguous.set(ambiguous);
        }
        if self.is_idle() {
            self.receives_head.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the head of a request has taken too long. What it looks at changes only while the connection is polled, so the
    /// task of the connection polls this afterwards, and nothing has to wake it.
    pub(super) async fn is_late(&self) {
        let mut head = None;
        poll_fn(|cx| {
            if !self.receives_head.load(Ordering::Relaxed) {
                head = None;
                return Poll::Pending;
            }
            let begun = self.begun();
            let (_, limit) = match head.take() {
                Some((number, limit)) if number == begun => head.insert((number, limit)),
                _ => head.insert((begun, Box::pin(sleep(HEAD)))),
            };
            limit.as_mut().poll(cx)
        })
        .await;
    }
}

/// A request that is not answered completely.
#[derive(Debug)]
pub(super) struct InProgress {
    number: usize,
    occupied: Option<Occupied>,
    progress: Arc<Progress>,
}

impl InProgress {
    /// Why two programs could read the request differently, if hyper does not tell.
    pub(super) fn ambiguous(&self) -> Option<&'static str> {
        let first = self.progress.ambiguous.get()?;
        (first.request <= self.number).then_some(first.why)
    }

    /// Whether the connection is to end after the answer.
    pub(super) fn is_last(&self) -> bool {
        self.progress.seat.end().is_cancelled()
    }

    /// The connection becomes a tunnel: it is in use until it ends.
    pub(super) fn becomes_tunnel(mut self) {
        if let Some(occupied) = self.occupied.take() {
            // A connection becomes a tunnel once.
            let _first = self.progress.tunnel.set(occupied);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.progress.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream with its [`Progress`].
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    wire: Wire,
    progress: Arc<Progress>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, progress: &Arc<Progress>) -> Self {
        Self { stream, wire: Wire::default(), progress: Arc::clone(progress) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let Self { stream, wire, progress } = &mut *self;
        ready!(Pin::new(stream).poll_read(cx, buffer))?;
        progress.has_read(wire, buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use tokio_util::sync::CancellationToken;

    use super::{super::tests::seat, *};

    #[tokio::test]
    async fn nothing_that_goes_through_a_tunnel_is_kept() {
        let progress = Progress::new(seat(&CancellationToken::new()), true);
        let (mut client, stream) = duplex(1024);
        let mut watched = Watched::new(stream, &progress);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n\r\n").await.unwrap();
        watched.read_buf(&mut Vec::new()).await.unwrap();
        progress.request().becomes_tunnel();
        client.write_all(b"a password").await.unwrap();
        watched.read_buf(&mut Vec::new()).await.unwrap();
        assert_eq!(format!("{:?}", watched.wire), format!("{:?}", Wire::default()));
    }
}
