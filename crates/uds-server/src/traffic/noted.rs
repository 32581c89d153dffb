//! Records which writes the socket takes.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Traffic;

/// Bytes of a read that contains many requests, or large ones.
const MANY: usize = 2 * 1024;

/// A stream whose writes are recorded.
#[derive(Debug)]
pub(crate) struct Noted<S> {
    stream: S,
    traffic: Arc<Traffic>,
    /// Whether the last read was long. The requests in it are handled before the next read, so that a peer that sends a
    /// thousand requests at once does not make the broker hold all of them half done.
    is_due_to_yield: bool,
}

impl<S> Noted<S> {
    pub(crate) fn new(stream: S, traffic: &Arc<Traffic>) -> Self {
        Self { stream, traffic: Arc::clone(traffic), is_due_to_yield: false }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.traffic.blocked.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.traffic.written.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if mem::take(&mut this.is_due_to_yield) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.is_due_to_yield = buffer.filled().len() - before >= MANY;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.note(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        this.note(written)
    }

    /// False before the first write: h2 asks once then, and so copies frames below 1 KiB into one buffer, where many
    /// responses share one write. Later answers only decide how it writes a large frame.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored() && self.traffic.written.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_long_read_is_handled_before_the_next_one() {
        let traffic = Traffic::for_tests();
        let sent = vec![0; 2 * MANY];
        let mut stream = Noted::new(sent.as_slice(), &traffic);
        let mut buffer = [0; MANY];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), MANY);
        let mut read = pin!(stream.read(&mut buffer));
        assert!(poll!(&mut read).is_pending(), "the task yields first");
        assert_eq!(read.await.unwrap(), MANY);
    }
}
