//! A connection of one identity.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection as HyperConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::generation::IdentityGeneration;

/// A connection of one identity. It fails once that identity has been closed.
pub(super) struct Connection<T> {
    stream: Stream<T>,
    /// One for each direction: two tasks may share an upgraded connection, and both must be woken.
    reading: Closing,
    writing: Closing,
    /// An identity with a connection is in use.
    _generation: Arc<IdentityGeneration>,
}

/// Resolves when the connection must end.
type Closing = Pin<Box<WaitForCancellationFutureOwned>>;

enum Stream<T> {
    Plain(T),
    Tls(Box<TlsStream<T>>),
}

impl<T> Connection<T> {
    pub(super) fn tls(stream: TlsStream<T>, generation: &Arc<IdentityGeneration>) -> Self {
        Self::new(Stream::Tls(Box::new(stream)), generation)
    }

    /// Without TLS the connection presents no identity, but it ends like one that does.
    pub(super) fn plain(stream: T, generation: &Arc<IdentityGeneration>) -> Self {
        Self::new(Stream::Plain(stream), generation)
    }

    fn new(stream: Stream<T>, generation: &Arc<IdentityGeneration>) -> Self {
        let closing = || Box::pin(generation.closing.clone().cancelled_owned());
        Self { stream, reading: closing(), writing: closing(), _generation: Arc::clone(generation) }
    }
}

fn check(closing: &mut Closing, cx: &mut Context<'_>) -> io::Result<()> {
    match closing.as_mut().poll(cx) {
        Poll::Pending => Ok(()),
        Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, Replaced)),
    }
}

/// Why this side has closed a connection.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client certificate or the endpoint was replaced")]
struct Replaced;

/// Whether `error` is of a connection that this side has closed, because its certificate or endpoint was replaced.
pub fn is_replaced(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source of an I/O error is that of what is in it.
        let inner = error.downcast_ref().and_then(io::Error::get_ref);
        if inner.is_some_and(<dyn Error + Send + Sync>::is::<Replaced>) {
            return true;
        }
        next = error.source();
    }
    false
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.reading, cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        check(&mut self.writing, cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// A flush with nothing left to send succeeds, also when the identity has been closed: hyper flushes before each read, and
    /// the reader of an answer would not see why it ends.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = check(&mut self.writing, cx);
        let flushed = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        match closed {
            Err(error) if flushed.is_pending() => Poll::Ready(Err(error)),
            _ => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        check(&mut self.writing, cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
        }
    }
}

impl<T> HyperConnection for Connection<T> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
