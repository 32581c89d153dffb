//! One connection pool for each certificate, swapped as a whole.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
};

use http::{Request, Response, header::AUTHORIZATION};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, Service};

use super::{Connector, Dialer, IdentityError, Settings, connector::tcp, epoch::Epoch};
use crate::CredentialSource;

/// An HTTP/1.1 client whose connections present the source's newest certificate.
///
/// - The certificate changed: new requests go over new connections, at once. Idle old ones are closed, busy ones when
///   they become idle, all of them after [`Settings::drain`]. Streams and upgrades count as busy.
/// - The certificate came back before that: its connections stay.
/// - The token changed, or the PEM text of the same certificate: nothing is closed.
///
/// It sends no token; [`Authenticate`](crate::Authenticate) does. Clones share the connections.
///
/// ```no_run
/// # fn example(source: credbroker_client::CredentialSource, settings: credbroker_client::tls::Settings) {
/// use bytes::Bytes;
/// use credbroker_client::{Authenticate, tls::RotatingClient};
/// use http_body_util::Full;
/// use tower::Layer;
///
/// let client = RotatingClient::<Full<Bytes>>::new(source.clone(), settings);
/// let service = Authenticate::new(source).layer(client);
/// # }
/// ```
pub struct RotatingClient<B, C = HttpConnector> {
    pools: Arc<Pools<B, C>>,
    /// Swaps the pools while there are no requests, too. Ends with the last clone.
    follower: Arc<AbortOnDropHandle<()>>,
}

struct Pools<B, C> {
    connector: Connector<C>,
    current: Mutex<Pool<B, C>>,
}

struct Pool<B, C> {
    epoch: Arc<Epoch>,
    client: Client<Connector<C>, B>,
}

/// Why there is no response.
///
/// ```no_run
/// # fn example(error: tower::BoxError) {
/// use credbroker_client::tls::SendError;
///
/// let never_sent = matches!(error.downcast_ref(), Some(SendError::Expired | SendError::Identity(_)));
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no valid credential now. Wait for [`CredentialSource::ready`].
    #[error("there is no valid credential to connect with")]
    Expired,
    /// Its certificate cannot be presented; a person has to look at it.
    #[error("the credential's certificate cannot be presented")]
    Identity(#[from] IdentityError),
    /// The connection failed, or ended before the response. What is idempotent can be sent again.
    #[error("the request failed")]
    Failed(#[from] hyper_util::client::legacy::Error),
}

impl<B> RotatingClient<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// Over TCP. Needs a tokio runtime.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource, settings: credbroker_client::tls::Settings) {
    /// use credbroker_client::tls::RotatingClient;
    ///
    /// let client = RotatingClient::<http_body_util::Empty<bytes::Bytes>>::new(source, settings);
    /// # }
    /// ```
    pub fn new(source: CredentialSource, settings: Settings) -> Self {
        Self::over(tcp(), source, settings)
    }
}

impl<B, C> RotatingClient<B, C>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    C: Dialer,
{
    /// Over what `dialer` connects: a proxy's tunnel, for example. Needs a tokio runtime.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource, settings: credbroker_client::tls::Settings) {
    /// use credbroker_client::tls::RotatingClient;
    /// use hyper_util::client::legacy::connect::HttpConnector;
    ///
    /// let mut tcp = HttpConnector::new();
    /// tcp.enforce_http(false);
    /// let client = RotatingClient::<http_body_util::Empty<bytes::Bytes>, _>::over(tcp, source, settings);
    /// # }
    /// ```
    pub fn over(dialer: C, source: CredentialSource, settings: Settings) -> Self {
        let follows = source.clone();
        let connector = Connector::over(dialer, source, settings);
        let epoch = connector.epochs().current().unwrap_or_else(|_| connector.epochs().known());
        let current = Mutex::new(Pool::new(epoch, &connector));
        let pools = Arc::new(Pools { connector, current });
        #[expect(clippy::disallowed_methods, reason = "ends with the last clone of the client")]
        let follower = tokio::spawn(follow(follows, Arc::downgrade(&pools)));
        Self { pools, follower: Arc::new(AbortOnDropHandle::new(follower)) }
    }
}

impl<B, C> Pools<B, C>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    C: Dialer,
{
    /// The pool of the newest certificate. The one before closes its idle connections as it is dropped.
    fn current(&self) -> Result<Client<Connector<C>, B>, IdentityError> {
        let mut pool = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, or an older epoch could be put in the place of a newer one.
        let epoch = self.connector.epochs().current()?;
        if !Arc::ptr_eq(&epoch, &pool.epoch) {
            *pool = Pool::new(epoch, &self.connector);
        }
        Ok(pool.client.clone())
    }
}

impl<B, C> Pool<B, C>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    C: Dialer,
{
    fn new(epoch: Arc<Epoch>, connector: &Connector<C>) -> Self {
        let client =
            Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector.clone());
        Self { epoch, client }
    }
}

async fn follow<B, C>(mut source: CredentialSource, pools: Weak<Pools<B, C>>)
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    C: Dialer,
{
    loop {
        source.changed().await;
        let Some(pools) = pools.upgrade() else { return };
        // A certificate that cannot be presented is every request's error.
        drop(pools.current());
    }
}

impl<B, C> Service<Request<B>> for RotatingClient<B, C>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    C: Dialer,
{
    type Response = Response<Incoming>;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, SendError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let epochs = self.pools.connector.epochs();
        let needs_none = request.headers().contains_key(AUTHORIZATION) && epochs.known().identity.is_none();
        if epochs.source.current().is_none() && !needs_none {
            return Box::pin(async { Err(SendError::Expired) });
        }
        match self.pools.current() {
            Ok(client) => {
                let response = client.request(request);
                Box::pin(async move { Ok(response.await?) })
            }
            Err(error) => Box::pin(async move { Err(error.into()) }),
        }
    }
}

impl<B, C> Clone for RotatingClient<B, C> {
    fn clone(&self) -> Self {
        Self { pools: Arc::clone(&self.pools), follower: Arc::clone(&self.follower) }
    }
}

impl<B, C> fmt::Debug for RotatingClient<B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatingClient").field("connector", &self.pools.connector).finish_non_exhaustive()
    }
}
