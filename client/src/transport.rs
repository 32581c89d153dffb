//! One HTTP/2 connection as the service that the generated client calls.

use std::{
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http_body_util::{BodyExt, combinators::MapErr};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tonic::body::Body;
use tower::Service;

use crate::lost::ConnectionLost;

/// Room for a `Status` whose message has the tail of a plugin's stderr, in both of its headers.
const MAX_HEADER_LIST: u32 = 256 * 1024;

type ResponseBody = MapErr<Incoming, fn(hyper::Error) -> ConnectionLost>;

/// Sends requests on one connection, which lives as long as the last clone of this.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    sender: http2::SendRequest<Body>,
}

impl Transport {
    pub(crate) async fn over(stream: UnixStream) -> Result<Self, ConnectionLost> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            // The protocol's own window: no WINDOW_UPDATE to send before the first request.
            .initial_connection_window_size(65_535)
            .initial_stream_window_size(65_535)
            .max_header_list_size(MAX_HEADER_LIST)
            .handshake(TokioIo::new(stream))
            .await?;
        #[expect(clippy::disallowed_methods, reason = "ends by itself when the last `Transport` is dropped")]
        tokio::spawn(connection);
        Ok(Self { sender })
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
