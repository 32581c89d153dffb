//! What makes connections to hosts.

use std::{fmt, future::Future, time::Duration};

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tower::Service;

use crate::transport::BoxError;

/// Makes connections to hosts: [`Tcp`], or your own, for example through a tunnel.
pub trait Dialer: Clone + Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Connects to the host and port of the URI.
    fn dial(&self, uri: Uri) -> impl Future<Output = Result<Self::Stream, BoxError>> + Send;
}

/// Connects over TCP.
#[derive(Clone)]
pub struct Tcp(HttpConnector);

impl Tcp {
    /// Connects over TCP, with `TCP_NODELAY` and with keepalive probes after 30 seconds.
    pub fn new() -> Self {
        Self(tcp())
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self::new()
    }
}

impl Dialer for Tcp {
    type Stream = TcpStream;

    async fn dial(&self, uri: Uri) -> Result<TcpStream, BoxError> {
        Ok(connect(self.0.clone(), uri).await?.into_inner())
    }
}

/// A connector of hyper-util as a dialer.
#[derive(Clone, Debug)]
pub(crate) struct HyperDialer<C>(pub(crate) C);

impl<C> Dialer for HyperDialer<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Stream = TokioIo<C::Response>;

    async fn dial(&self, uri: Uri) -> Result<Self::Stream, BoxError> {
        Ok(TokioIo::new(connect(self.0.clone(), uri).await?))
    }
}

async fn connect<C>(mut connector: C, uri: Uri) -> Result<C::Response, BoxError>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
{
    std::future::poll_fn(|cx| connector.poll_ready(cx)).await.map_err(Into::into)?;
    connector.call(uri).await.map_err(Into::into)
}

pub(crate) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp").finish_non_exhaustive()
    }
}
