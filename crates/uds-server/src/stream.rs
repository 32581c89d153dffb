//! The stream of a connection: what HTTP/2 reads and writes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::traffic::Traffic;

/// The most bytes of a read, and of one poll: the requests in it are handled before the next read, and others wait for few.
const READ: usize = 2 * 1024;
/// How long a peer is not read after a refused call: longer than the server needs to answer what it has read.
const REFUSAL_PAUSE: Duration = Duration::from_millis(20);
/// The most bytes that wait for the first answer. The first frames of HTTP/2 are shorter.
const CORKED: usize = 1024;
/// The most bytes that go out in one write with those that have waited: about two writes of HTTP/2.
const JOINED: usize = 32 * 1024;

/// A stream whose writes are recorded, and whose first ones wait while its [`Traffic`] is corked.
#[derive(Debug)]
pub(crate) struct Noted<S> {
    stream: S,
    traffic: Arc<Traffic>,
    /// What waits, and what goes out with it.
    first: Vec<u8>,
    /// The pause after a refused call. It goes on while the peer does not read, so that answers to what is refused do not
    /// pile up.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Noted<S> {
    pub(crate) fn new(stream: S, traffic: &Arc<Traffic>) -> Self {
        let traffic = Arc::clone(traffic);
        Self { stream, traffic, first: Vec::new(), pause: None }
    }

    fn note(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.traffic.blocked.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.traffic.written.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Traffic { refused, blocked, .. } = &*self.traffic;
        while self.pause.is_some() || refused.load(Ordering::Relaxed) {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(REFUSAL_PAUSE)));
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
            refused.store(blocked.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Poll::Ready(())
    }

    /// Whether `more` bytes wait too, or go out with those that have waited. Nothing waits from the first answer on.
    fn joins(&self, more: usize) -> bool {
        let joined = self.first.len() + more;
        if self.traffic.is_corked() && (self.traffic.has_answered() || joined > CORKED) {
            self.traffic.uncork();
        }
        self.traffic.is_corked() || !self.first.is_empty() && joined <= JOINED
    }
}

impl<S: AsyncWrite + Unpin> Noted<S> {
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.first.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.first);
            match ready!(self.note(written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count if count < self.first.len() => drop(self.first.drain(..count)),
                _ => self.first = Vec::new(),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.traffic.has_read.load(Ordering::Relaxed) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.poll_pause(cx));
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(READ.min(buffer.remaining())));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        this.traffic.has_read.store(read == READ, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.joins(bytes.len()) {
            this.first.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.poll_first(cx))?;
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.note(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.traffic.is_corked() {
            this.traffic.on_uncork.register(cx.waker());
            // Again, so that no wake-up is missed.
            if this.traffic.is_corked() {
                return Poll::Ready(Ok(()));
            }
        }
        ready!(this.poll_first(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.traffic.uncork();
        ready!(this.poll_first(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.traffic.is_corked() || !self.first.is_empty() {
            let first = bytes.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
            return self.poll_write(cx, first);
        }
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::traffic::Call;

    #[tokio::test]
    async fn a_full_read_is_handled_before_the_next_one() {
        let traffic = Traffic::for_tests();
        let sent = vec![0; 2 * READ];
        let mut stream = Noted::new(sent.as_slice(), &traffic);
        let mut buffer = [0; READ];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), READ);
        let mut read = pin!(stream.read(&mut buffer));
        assert!(poll!(&mut read).is_pending() && poll!(&mut read).is_pending(), "one read for each poll");
        traffic.has_read.store(false, Ordering::Relaxed);
        assert_eq!(read.await.unwrap(), READ);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_not_read_for_a_while_after_a_refused_call_and_while_it_does_not_read() {
        let traffic = Traffic::for_tests();
        let sent = [7; 16];
        let mut stream = Noted::new(sent.as_slice(), &traffic);
        assert_eq!(stream.read_u8().await.unwrap(), 7);
        traffic.refused.store(true, Ordering::Relaxed);
        assert!(poll!(pin!(stream.read_u8())).is_pending());
        assert_eq!(stream.read_u8().await.unwrap(), 7);
        assert!(poll!(pin!(stream.read_u8())).is_ready(), "one pause");
        for flag in [&traffic.refused, &traffic.blocked] {
            flag.store(true, Ordering::Relaxed);
        }
        let mut read = pin!(stream.read_u8());
        assert!(poll!(&mut read).is_pending());
        sleep(REFUSAL_PAUSE * 10).await;
        assert!(poll!(&mut read).is_pending(), "it does not read");
        traffic.blocked.store(false, Ordering::Relaxed);
        assert_eq!(read.await.unwrap(), 7);
    }

    /// What the peer gets of `written`, of which nothing goes out before `uncork`.
    async fn gets(written: &[&[u8]], uncork: impl Fn(&Arc<Traffic>)) -> Vec<u8> {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let traffic = Traffic::for_tests();
        let mut ours = Noted::new(ours, &traffic);
        let (last, first) = written.split_last().unwrap();
        for bytes in first {
            ours.write_all(bytes).await.unwrap();
            ours.flush().await.unwrap();
            assert!(poll!(pin!(theirs.read_u8())).is_pending(), "it waits for an answer");
        }
        uncork(&traffic);
        ours.write_all(last).await.unwrap();
        ours.flush().await.unwrap();
        let mut got = [0; 4096];
        let count = theirs.read(&mut got).await.unwrap();
        got[..count].to_vec()
    }

    #[tokio::test]
    async fn what_is_written_first_goes_out_with_the_first_answer_or_when_none_comes_soon() {
        let answer = |traffic: &Arc<Traffic>| drop(Call::of(traffic));
        assert_eq!(gets(&[b"settings", b"more", b"answer"], answer).await, b"settingsmoreanswer");
        assert_eq!(gets(&[b"settings", b""], |traffic| traffic.uncork()).await, b"settings");
        let long = [7; CORKED + 1];
        assert_eq!(gets(&[b"settings", &long], |_| {}).await, [b"settings", &long[..]].concat());
    }
}
