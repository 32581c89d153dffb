//! Connections that present the newest certificate of a source.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::Service;

use super::{
    connection::Connection, dialer::Dialer, generation::IdentityGenerations, identity::IdentityError,
    settings::Settings,
};
use crate::source::handle::CredentialSource;

/// A certificate that changes during this many handshakes in a row is a defect of its issuer.
const HANDSHAKES: usize = 5;

/// Makes connections that present the source's newest certificate. The certificate is compared again after the handshake.
/// A connection ends when its certificate has been replaced and the drain deadline has passed.
#[derive(Clone)]
pub(super) struct Connector<D> {
    dialer: D,
    generations: Arc<IdentityGenerations>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// Nothing answers there.
    #[error("no connection to {host}")]
    Dial {
        /// The host.
        host: String,
        /// The error of the dialer.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server's certificate is not trusted, or the server does not speak TLS.
    #[error("no TLS connection to {host}")]
    Handshake {
        /// The host.
        host: String,
        /// The error of the handshake.
        source: io::Error,
    },
    /// The client certificate cannot be presented.
    #[error("the credential's certificate cannot be presented")]
    Identity(#[from] IdentityError),
    /// The certificate changed during each of several handshakes. Try again.
    #[error("the client certificate changes faster than connections are made")]
    IdentityChanging,
    /// The host is not a name that a certificate can have.
    #[error("{host:?} is not a valid TLS server name")]
    ServerName {
        /// The host of the URI.
        host: String,
        /// What is wrong with it.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// It took longer than [`Settings::connect_timeout`].
    #[error("no connection within {limit:?}")]
    Timeout {
        /// The time that was allowed.
        limit: Duration,
    },
}

impl<D: Dialer> Connector<D> {
    pub(super) fn new(dialer: D, source: CredentialSource, settings: Settings) -> Self {
        Self { dialer, generations: Arc::new(IdentityGenerations::new(source, settings)) }
    }

    pub(super) fn generations(&self) -> &Arc<IdentityGenerations> {
        &self.generations
    }

    async fn connect(self, uri: Uri) -> Result<Connection<D::Stream>, ConnectError> {
        let host = uri.host().unwrap_or_default().to_owned();
        for _ in 0..HANDSHAKES {
            let generation = self.generations.current()?;
            let dialled = self.dialer.dial(uri.clone()).await;
            let stream = dialled.map_err(|source| ConnectError::Dial { host: host.clone(), source })?;
            if uri.scheme() != Some(&Scheme::HTTPS) {
                return Ok(Connection::plain(stream, &generation));
            }
            let name = match &self.generations.settings.server_name {
                Some(name) => name.clone(),
                None => server_name(&host)?,
            };
            let tls = TlsConnector::from(Arc::clone(&generation.config)).connect(name, stream).await;
            let stream = tls.map_err(|source| ConnectError::Handshake { host: host.clone(), source })?;
            // If the certificate changed during the handshake, this connection was not among those that were closed.
            if Arc::ptr_eq(&generation, &self.generations.current()?) {
                return Ok(Connection::tls(stream, &generation));
            }
        }
        Err(ConnectError::IdentityChanging)
    }
}

impl<D: Dialer> Service<Uri> for Connector<D> {
    type Response = TokioIo<Connection<D::Stream>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let limit = connector.generations.settings.connect;
            let connected = timeout(limit, connector.connect(uri)).await;
            Ok(TokioIo::new(connected.unwrap_or(Err(ConnectError::Timeout { limit }))?))
        })
    }
}

impl<D> fmt::Debug for Connector<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("source", &self.generations.source).finish_non_exhaustive()
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, ConnectError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned());
    name.map_err(|source| ConnectError::ServerName { host: host.to_owned(), source: Arc::new(source) })
}
