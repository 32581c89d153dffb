//! One HTTP/2 connection as the service that the generated client calls.

use std::{
    error::Error,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body_util::{BodyExt, combinators::MapErr};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};
use tonic::body::Body;
use tower::Service;

use crate::lost::ConnectionLost;

/// Room for a status whose message has the end of a plugin's stderr, in both of its headers.
const MAX_HEADER_LIST: u32 = 256 * 1024;

/// A connection with open calls is pinged when it has been silent for this long, as client-go pings API servers.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The connection counts as lost when the answer to a ping takes longer.
const PING_LIMIT: Duration = Duration::from_secs(15);

/// The error of a service that callers supply.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

type ResponseBody = MapErr<Incoming, fn(hyper::Error) -> ConnectionLost>;

/// Sends requests on one connection, which is closed with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    sender: http2::SendRequest<Body>,
}

impl Transport {
    /// Resolves when the other end has sent something: a server begins with its SETTINGS. The caller limits the time.
    pub(crate) async fn over<S>(stream: S) -> Result<Self, ConnectionLost>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (begin, first_bytes) = oneshot::channel();
        let stream = FirstRead { stream, begin: Some(begin) };
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_LIMIT)
            // The protocol's own window: no WINDOW_UPDATE to send before the first request.
            .initial_connection_window_size(65_535)
            .initial_stream_window_size(65_535)
            .max_header_list_size(MAX_HEADER_LIST)
            .handshake(TokioIo::new(stream))
            .await?;
        #[expect(clippy::disallowed_methods, reason = "ends by itself when the last `Transport` is dropped")]
        tokio::spawn(connection);
        // If the connection ended instead, every call on it fails.
        drop(first_bytes.await);
        Ok(Self { sender })
    }
}

/// Signals the first bytes that arrive, and passes everything on.
struct FirstRead<S> {
    stream: S,
    begin: Option<oneshot::Sender<()>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstRead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before
            && let Some(begin) = self.begin.take()
        {
            // Without a receiver the caller has given up, and the connection closes.
            let _given_up = begin.send(());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstRead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Service<http::Request<Body>> for Transport {
    type Response = http::Response<ResponseBody>;
    type Error = ConnectionLost;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    /// Always ready: a request on a closed connection fails with a better error.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let response = self.sender.send_request(request);
        Box::pin(async move {
            let into_lost: fn(hyper::Error) -> ConnectionLost = ConnectionLost::from;
            Ok(response.await?.map(|body| body.map_err(into_lost)))
        })
    }
}

impl From<hyper::Error> for ConnectionLost {
    fn from(error: hyper::Error) -> Self {
        let mut text = error.to_string();
        let mut below = error.source();
        while let Some(error) = below {
            text = format!("{text}: {error}");
            below = error.source();
        }
        Self::new(text)
    }
}
