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

/// Room for a `Status` whose message has the tail of a plugin's stderr, in both of its headers.
const MAX_HEADER_LIST: u32 = 256 * 1024;

/// A connection with open calls that is quiet for so long is asked for a sign of life, as client-go asks API servers.
const PING_AFTER: Duration = Duration::from_secs(30);
/// How long the sign of life may take; then the connection counts as lost.
const PING_LIMIT: Duration = Duration::from_secs(15);

type ResponseBody = MapErr<Incoming, fn(hyper::Error) -> ConnectionLost>;

/// Sends requests on one connection, which lives as long as the last clone of this.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    sender: http2::SendRequest<Body>,
}

impl Transport {
    /// Resolves when the other end has sent something: a server begins with its SETTINGS. The caller sets the limit.
    pub(crate) async fn over<S>(stream: S) -> Result<Self, ConnectionLost>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (began, begins) = oneshot::channel();
        let stream = Listening { stream, began: Some(began) };
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
        // A connection that ended instead is every call's error.
        drop(begins.await);
        Ok(Self { sender })
    }
}

/// Tells of the first bytes that come, then passes everything on.
struct Listening<S> {
    stream: S,
    began: Option<oneshot::Sender<()>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Listening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before
            && let Some(began) = self.began.take()
        {
            // Who gave up waiting closes the connection.
            let _unheard = began.send(());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listening<S> {
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

    /// Always ready: a request on a closed connection fails by itself, with a better error.
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
