//! Records which writes the socket takes.

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Traffic;

/// A stream whose writes are recorded.
#[derive(Debug)]
pub(in crate::server) struct Noted<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

impl<S> Noted<S> {
    pub(in crate::server) fn new(stream: S, traffic: &Arc<Traffic>) -> Self {
        Self { stream, traffic: Arc::clone(traffic) }
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
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
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
