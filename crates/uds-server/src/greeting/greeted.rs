//! A stream that was greeted, as hyper must see it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Greeting;
use crate::traffic::Traffic;

/// A stream that was greeted, as hyper must see it.
#[derive(Debug)]
pub(crate) struct Greeted<S> {
    stream: S,
    /// What hyper has not read of what was heard. Empty and unallocated from then on.
    heard: Vec<u8>,
    /// What hyper has not sent again.
    said: &'static [u8],
    /// Left out, but not sent yet: it goes before the next bytes.
    unsent: &'static [u8],
    traffic: Arc<Traffic>,
}

impl<S> Greeted<S> {
    /// `traffic` says how long the first frames may wait for an answer.
    pub(crate) fn new(stream: S, greeting: Greeting, traffic: &Arc<Traffic>) -> Self {
        let Greeting { heard, said, is_held_back } = greeting;
        if is_held_back {
            traffic.hold_back();
        }
        let unsent = if is_held_back { said } else { &[] };
        Self { stream, heard, said, unsent, traffic: Arc::clone(traffic) }
    }

    /// Leaves out the beginning of `bytes`. `None`: nothing of them was expected.
    fn repeat(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let count = bytes.len().min(self.said.len());
        if count == 0 {
            return None;
        }
        let (repeated, rest) = self.said.split_at(count);
        if bytes.starts_with(repeated) {
            self.said = rest;
            return Some(Ok(count));
        }
        if self.unsent.is_empty() {
            let message = "hyper does not begin with the frames that the peer was sent";
            return Some(Err(io::Error::other(message)));
        }
        self.expect_nothing();
        None
    }

    /// Of the frames that are held back, those go out that hyper has sent, and further ones as hyper sends them.
    fn expect_nothing(&mut self) {
        let left_out = self.unsent.len().saturating_sub(self.said.len());
        self.unsent = self.unsent.get(..left_out).unwrap_or_default();
        self.said = &[];
    }
}

impl<S: AsyncWrite + Unpin> Greeted<S> {
    /// Writes what is held back, and as many of `bytes` as fit into the same write; returns their number.
    fn poll_unsent(&mut self, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        while !self.unsent.is_empty() {
            let all: Vec<_> =
                [io::IoSlice::new(self.unsent)].into_iter().chain(bytes.iter().copied()).collect();
            let count = match ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &all))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => count,
            };
            let further = count.saturating_sub(self.unsent.len());
            self.unsent = self.unsent.get(count..).unwrap_or_default();
            if self.unsent.is_empty() {
                self.traffic.has_sent_first();
            }
            if further > 0 {
                return Poll::Ready(Ok(further));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.heard.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let count = this.heard.len().min(buffer.remaining());
        buffer.put_slice(this.heard.get(..count).unwrap_or_default());
        this.heard.drain(..count);
        if this.heard.is_empty() {
            this.heard = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(left_out) = this.repeat(bytes) {
            return Poll::Ready(left_out);
        }
        match ready!(this.poll_unsent(cx, &[io::IoSlice::new(bytes)]))? {
            0 => Pin::new(&mut this.stream).poll_write(cx, bytes),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.unsent.is_empty() && !this.traffic.is_held_back() {
            this.expect_nothing();
            ready!(this.poll_unsent(cx, &[]))?;
        }
        Pin::new(&mut this.stream).poll_flush(cx)
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
        let first = bytes.iter().find(|slice| !slice.is_empty());
        if let Some(left_out) = first.and_then(|first| this.repeat(first)) {
            return Poll::Ready(left_out);
        }
        match ready!(this.poll_unsent(cx, bytes))? {
            0 => Pin::new(&mut this.stream).poll_write_vectored(cx, bytes),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
