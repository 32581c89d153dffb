//! A deadline for the HTTP/2 handshake. It disconnects a peer that sends nothing, or only a part of the handshake.
//!
//! HTTP/2 keep-alive does not cover this: its pings start only after the handshake.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Length of the preface `PRI * HTTP/2.0 …` and of the head of the SETTINGS frame that must follow.
const PREFACE_AND_HEAD: usize = 24 + 9;

/// A stream that fails with `TimedOut` unless the peer's preface and first SETTINGS frame arrive in time.
#[derive(Debug)]
pub(super) struct HandshakeDeadline<S> {
    stream: S,
    /// `None` once the handshake is done.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    deadline: Pin<Box<Sleep>>,
    head: Vec<u8>,
    received: usize,
}

impl<S> HandshakeDeadline<S> {
    /// Gives the peer `limit` from now.
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        let (deadline, head) = (Box::pin(sleep(limit)), Vec::with_capacity(PREFACE_AND_HEAD));
        Self { stream, waiting: Some(Waiting { deadline, head, received: 0 }) }
    }
}

impl Waiting {
    /// Records bytes that arrived. Returns true once the SETTINGS frame is complete.
    fn note(&mut self, bytes: &[u8]) -> bool {
        self.received += bytes.len();
        let missing = PREFACE_AND_HEAD - self.head.len();
        self.head.extend(bytes.iter().take(missing));
        let [.., high, middle, low, _, _, _, _, _, _] = self.head.as_slice() else { return false };
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        self.head.len() == PREFACE_AND_HEAD && self.received >= PREFACE_AND_HEAD + length
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HandshakeDeadline<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(waiting) = &mut this.waiting else {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        };
        if waiting.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if waiting.note(buffer.filled().get(before..).unwrap_or_default()) {
            this.waiting = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HandshakeDeadline<S> {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    /// A preface and a SETTINGS frame of six bytes.
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";

    #[tokio::test(start_paused = true)]
    async fn a_silent_or_halting_peer_is_cut_off_in_time() {
        for said in [0, 10, 24, 33, HELLO.len() - 1] {
            let (mut peer, ours) = duplex(1024);
            peer.write_all(&HELLO[..said]).await.unwrap();
            let mut ours = HandshakeDeadline::new(ours, LIMIT);
            let mut received = Vec::new();
            let ended = tokio::time::timeout(LIMIT * 2, ours.read_to_end(&mut received)).await;
            let error = ended.expect("the deadline ends it").unwrap_err();
            assert_eq!((error.kind(), received.len()), (io::ErrorKind::TimedOut, said));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_finished_its_handshake_may_be_silent() {
        let (mut peer, ours) = duplex(1024);
        let mut ours = HandshakeDeadline::new(ours, LIMIT);
        for byte in HELLO {
            peer.write_all(&[*byte]).await.unwrap(); // byte by byte
            assert_eq!(ours.read_u8().await.unwrap(), *byte);
        }
        let late = tokio::time::timeout(LIMIT * 10, ours.read_u8()).await;
        assert!(late.is_err(), "still open and silent");
    }
}
