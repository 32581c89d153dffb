//! Dials, and presents whoever it is now.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper::rt::{Read, Write};
use hyper_util::{
    client::legacy::connect::{Connection as Connects, HttpConnector},
    rt::TokioIo,
};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service};

use super::{Connection, IdentityError, Settings, epoch::Epochs};
use crate::CredentialSource;

/// A certificate that changes with every handshake is not the network's fault, but no connection of it can be right.
const HANDSHAKES: usize = 5;

/// Whatever connects to a host: hyper's own `HttpConnector`, a proxy's tunnel, or one of yours. Implemented for every
/// service that fits.
///
/// ```
/// fn takes(dialer: impl credbroker_client::tls::Dialer) {}
/// takes(hyper_util::client::legacy::connect::HttpConnector::new());
/// ```
pub trait Dialer: Clone + Send + Sync + 'static {
    /// What it connects to hosts.
    type Stream: Read + Write + Connects + Send + Unpin + 'static;

    /// Connects to the URI's host and port.
    fn dial(&self, uri: Uri) -> impl Future<Output = Result<Self::Stream, BoxError>> + Send;
}

impl<C> Dialer for C
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connects + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Stream = C::Response;

    async fn dial(&self, uri: Uri) -> Result<Self::Stream, BoxError> {
        let mut dialer = self.clone();
        std::future::poll_fn(|cx| dialer.poll_ready(cx)).await.map_err(Into::into)?;
        dialer.call(uri).await.map_err(Into::into)
    }
}

/// Makes connections that present the source's newest certificate, checked once more after the handshake, and that
/// end when its time does.
///
/// A pool around it does not know when a certificate is replaced, and goes on to reuse the old connections until the
/// drain deadline: [`RotatingClient`](super::RotatingClient) has a pool that does.
///
/// ```no_run
/// # fn example(source: credbroker_client::CredentialSource, settings: credbroker_client::tls::Settings) {
/// use credbroker_client::tls::Connector;
///
/// let connector = Connector::new(source, settings);
/// # }
/// ```
#[derive(Clone)]
pub struct Connector<C = HttpConnector> {
    dialer: C,
    epochs: Arc<Epochs>,
}

/// Why there is no connection.
///
/// ```no_run
/// # fn example(error: &credbroker_client::tls::ConnectError) {
/// let may_help_to_try_again = matches!(error, credbroker_client::tls::ConnectError::Timeout { .. });
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answers there.
    #[error("no connection to {host}")]
    Dial {
        /// Where to.
        host: String,
        /// What was met.
        source: BoxError,
    },
    /// The server's certificate is not trusted, or it speaks no TLS.
    #[error("no TLS connection to {host}")]
    Handshake {
        /// Where to.
        host: String,
        /// What was met.
        source: io::Error,
    },
    /// The client's own certificate cannot be presented.
    #[error("the credential's certificate cannot be presented")]
    Identity(#[from] IdentityError),
    /// The certificate changed during each of several handshakes. Try again.
    #[error("the client certificate changes faster than connections are made")]
    Restless,
    /// The host is no name that a certificate could have.
    #[error("{host:?} is no TLS server name")]
    ServerName {
        /// The URI's host.
        host: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
    /// It took longer than [`Settings::connect_timeout`].
    #[error("no connection within {limit:?}")]
    Timeout {
        /// What was allowed.
        limit: Duration,
    },
}

impl Connector {
    /// Over TCP.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource, settings: credbroker_client::tls::Settings) {
    /// let connector = credbroker_client::tls::Connector::new(source, settings);
    /// # }
    /// ```
    pub fn new(source: CredentialSource, settings: Settings) -> Self {
        Self::over(tcp(), source, settings)
    }
}

impl<C: Dialer> Connector<C> {
    /// Over what `dialer` connects.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource, settings: credbroker_client::tls::Settings) {
    /// use credbroker_client::tls::Connector;
    /// use hyper_util::client::legacy::connect::HttpConnector;
    ///
    /// let mut tcp = HttpConnector::new();
    /// tcp.enforce_http(false);
    /// let connector = Connector::over(tcp, source, settings);
    /// # }
    /// ```
    pub fn over(dialer: C, source: CredentialSource, settings: Settings) -> Self {
        Self { dialer, epochs: Arc::new(Epochs::new(source, settings)) }
    }

    pub(super) fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }

    async fn connect(self, uri: Uri) -> Result<Connection<C::Stream>, ConnectError> {
        let host = uri.host().unwrap_or_default().to_owned();
        for _ in 0..HANDSHAKES {
            let epoch = self.epochs.current()?;
            let dialled = self.dialer.dial(uri.clone()).await;
            let stream = dialled.map_err(|source| ConnectError::Dial { host: host.clone(), source })?;
            if uri.scheme() != Some(&Scheme::HTTPS) {
                return Ok(Connection::plain(stream, &epoch));
            }
            let name = match &self.epochs.settings.server_name {
                Some(name) => name.clone(),
                None => server_name(&host)?,
            };
            let tls = TlsConnector::from(Arc::clone(&epoch.config));
            let shaken = tls.connect(name, TokioIo::new(stream)).await;
            let stream = shaken.map_err(|source| ConnectError::Handshake { host: host.clone(), source })?;
            // The certificate may have changed meanwhile, after the old connections were swept up.
            if Arc::ptr_eq(&epoch, &self.epochs.current()?) {
                return Ok(Connection::tls(stream, &epoch));
            }
        }
        Err(ConnectError::Restless)
    }
}

impl<C: Dialer> Service<Uri> for Connector<C> {
    type Response = Connection<C::Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let limit = connector.epochs.settings.connect;
            timeout(limit, connector.connect(uri)).await.unwrap_or(Err(ConnectError::Timeout { limit }))
        })
    }
}

impl<C> fmt::Debug for Connector<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("source", &self.epochs.source).finish_non_exhaustive()
    }
}

pub(crate) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}

fn server_name(host: &str) -> Result<ServerName<'static>, ConnectError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned());
    name.map_err(|source| ConnectError::ServerName { host: host.to_owned(), source })
}
