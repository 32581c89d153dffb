//! Upgraded connections: WebSocket and SPDY. Only a 101 makes one.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use credbroker_client::tls::ResponseBody;
use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    time::timeout,
};

use crate::{exchange::Exchange, record::Pending, usage::Traffic};

/// Bytes that a tunnel holds in each direction.
const BUFFER: usize = 32 * 1024;
/// From the 101 to two connections without HTTP.
const CHANGE: Duration = Duration::from_secs(10);

/// Carries bytes in both directions until both sides have closed theirs, one of them fails, or the exchange is cut.
pub(crate) async fn tunnel(
    client: OnUpgrade,
    server: Response<ResponseBody>,
    exchange: Exchange,
    mut pending: Pending,
) {
    let both = async { tokio::try_join!(client, hyper::upgrade::on(server)) };
    let Ok(Ok((client, server))) = timeout(CHANGE, both).await else { return pending.cut() };
    let (mut client, mut server) =
        (TokioIo::new(client), Counted::new(TokioIo::new(server), pending.traffic()));
    let is_cut = tokio::select! {
        ended = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER) => ended.is_err(),
        () = exchange.parties.ending.cut.cancelled() => true,
    };
    pending.carried(server.written, server.read);
    if is_cut {
        pending.cut();
    }
}

/// Counts what goes through, also if it is cut.
struct Counted<T> {
    inner: T,
    read: u64,
    written: u64,
    traffic: Arc<Traffic>,
}

impl<T> Counted<T> {
    fn new(inner: T, traffic: &Arc<Traffic>) -> Self {
        Self { inner, read: 0, written: 0, traffic: Arc::clone(traffic) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let bytes = (buffer.filled().len() - before) as u64;
        self.read += bytes;
        self.traffic.down(bytes);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(bytes)) = written {
            self.written += bytes as u64;
            self.traffic.up(bytes as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
