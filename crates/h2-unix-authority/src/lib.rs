//! Accepts every `:authority` that a gRPC client sends over a Unix socket.
//!
//! HTTP/2 expects a host name in `:authority`. A Unix socket has none, so clients send its path: gRPC's C core
//! percent-encoded (`run%2Fbroker.sock`), grpc-java and Swift unchanged. [`h2`] resets such a request with
//! `PROTOCOL_ERROR` before any service sees it. The authority has no meaning on a Unix socket, so this filter replaces
//! the bytes that h2 refuses before h2 reads them.
//!
//! The replacement has the same decoded length. HPACK's dynamic table depends only on lengths, so the tables of both
//! sides stay in step, and the rest of the connection decodes as the peer sent it.
//!
//! ```
//! # fn serve<S>(stream: S) {
//! let stream = h2_unix_authority::AuthorityFilter::new(stream);
//! // Give it to hyper, tonic or h2 instead of the stream.
//! # }
//! ```
//!
//! This crate is to be deleted when h2 accepts such values ([h2#487]). Clients that need it: the C core since 1.58 with
//! Python, Ruby and C++ ([grpc#38142]), grpc-java ([grpc-java#12664]), and Swift ([grpc-swift-nio-transport#176]).
//!
//! [`h2`]: https://docs.rs/h2
//! [h2#487]: https://github.com/hyperium/h2/pull/487
//! [grpc#38142]: https://github.com/grpc/grpc/issues/38142
//! [grpc-java#12664]: https://github.com/grpc/grpc-java/issues/12664
//! [grpc-swift-nio-transport#176]: https://github.com/grpc/grpc-swift-nio-transport/issues/176

mod frames;
mod hpack;
#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::frames::{Filter, HELD};

/// Bytes to read at a time while a header block is incomplete.
const READ: usize = 4 * 1024;

/// A stream whose peer may send any `:authority`.
#[derive(Debug)]
pub struct AuthorityFilter<S> {
    stream: S,
    filter: Filter,
    /// Bytes that were read but not passed on. Empty and unallocated, unless a read ended within a header block.
    held: Vec<u8>,
    /// Number of bytes at the start of `held` that may pass.
    ready: usize,
}

impl<S> AuthorityFilter<S> {
    /// Wraps `stream`, which begins with the peer's preface.
    pub fn new(stream: S) -> Self {
        Self { stream, filter: Filter::default(), held: Vec::new(), ready: 0 }
    }

    /// Copies the bytes that are ready into `buffer`.
    fn pass(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.ready.min(buffer.remaining());
        buffer.put_slice(self.held.get(..count).unwrap_or_default());
        self.held.drain(..count);
        self.ready -= count;
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }
}

impl<S: AsyncRead + Unpin> AuthorityFilter<S> {
    /// Reads into `buffer`, filters in place, and moves incomplete bytes to `held`. True at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let bytes = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        if bytes.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let (ready, length) = self.filter.filter(bytes);
        self.held.extend_from_slice(bytes.get(ready..length).unwrap_or_default());
        buffer.set_filled(before + ready);
        Poll::Ready(Ok(false))
    }

    /// Reads more bytes to complete the held frames.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.held.len();
        let more = READ.min(HELD.saturating_sub(before));
        self.held.reserve_exact(more);
        self.held.resize(before + more, 0);
        let mut rest = ReadBuf::new(self.held.get_mut(before..).unwrap_or_default());
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut rest);
        let count = rest.filled().len();
        self.held.truncate(before + count);
        ready!(read)?;
        if count == 0 {
            self.ready = before; // the end of the stream: nothing finishes it
            return Poll::Ready(Ok(()));
        }
        let (ready, length) = self.filter.filter(&mut self.held);
        self.held.truncate(length);
        self.ready = ready;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityFilter<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if this.held.is_empty() {
            let ended = ready!(this.poll_fill(cx, buffer))?;
            if ended || buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        while this.ready == 0 {
            ready!(this.poll_finish(cx))?;
        }
        this.pass(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AuthorityFilter<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
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
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
