//! A connection that knows whose it is.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection as Connects},
    rt::TokioIo,
};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::epoch::Epoch;

/// A connection of one certificate. It ends when the time of that certificate does.
///
/// ```no_run
/// # async fn example(mut connector: credbroker_client::tls::Connector) -> Result<(), tower::BoxError> {
/// use tower::Service;
///
/// let connection = connector.call("https://paris.example:6443".parse()?).await?;
/// # Ok(())
/// # }
/// ```
pub struct Connection<T> {
    stream: Stream<T>,
    /// One for each direction: an upgraded connection may be read in one task and written in another, and each is to
    /// be woken.
    reading: Closing,
    writing: Closing,
}

/// Resolves when the connection must end.
type Closing = Pin<Box<WaitForCancellationFutureOwned>>;

enum Stream<T> {
    Plain(T),
    Tls(Box<TokioIo<TlsStream<TokioIo<T>>>>),
}

impl<T> Connection<T> {
    pub(super) fn tls(stream: TlsStream<TokioIo<T>>, epoch: &Arc<Epoch>) -> Self {
        Self::new(Stream::Tls(Box::new(TokioIo::new(stream))), epoch)
    }

    /// Without TLS there is no identity, but its time ends all the same: nobody has to know the difference.
    pub(super) fn plain(stream: T, epoch: &Arc<Epoch>) -> Self {
        Self::new(Stream::Plain(stream), epoch)
    }

    fn new(stream: Stream<T>, epoch: &Arc<Epoch>) -> Self {
        let closing = || Box::pin(epoch.closing.clone().cancelled_owned());
        Self { stream, reading: closing(), writing: closing() }
    }
}

fn check(closing: &mut Closing, cx: &mut Context<'_>) -> io::Result<()> {
    match closing.as_mut().poll(cx) {
        Poll::Pending => Ok(()),
        Poll::Ready(()) => {
            let problem = "the client certificate was replaced, or the endpoint";
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, problem))
        }
    }
}

impl<T: Read + Write + Unpin> Read for Connection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.reading, cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<T: Read + Write + Unpin> Write for Connection<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        check(&mut self.writing, cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.writing, cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
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

impl<T: Connects> Connects for Connection<T> {
    fn connected(&self) -> Connected {
        match &self.stream {
            Stream::Plain(stream) => stream.connected(),
            Stream::Tls(stream) => stream.inner().get_ref().0.inner().connected(),
        }
    }
}

impl<T> fmt::Debug for Connection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = matches!(self.stream, Stream::Tls(_));
        f.debug_struct("Connection").field("tls", &tls).finish_non_exhaustive()
    }
}
