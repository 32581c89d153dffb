//! What makes connections to hosts.

use std::{future::Future, time::Duration};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
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

/// Connects over TCP, with `TCP_NODELAY` and with keepalive probes after 30 seconds.
#[derive(Clone, Debug)]
pub struct Tcp(HttpConnector);

impl Default for Tcp {
    fn default() -> Self {
        Self(tcp())
    }
}

impl Dialer for Tcp {
    type Stream = TcpStream;

    async fn dial(&self, uri: Uri) -> Result<TcpStream, BoxError> {
        let mut connector = self.0.clone();
        std::future::poll_fn(|cx| connector.poll_ready(cx)).await?;
        Ok(connector.call(uri).await?.into_inner())
    }
}

/// Connections with `TCP_NODELAY` and keepalive probes.
pub fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}
