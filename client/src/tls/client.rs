//! One connection pool for each certificate, replaced as a whole.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, header::AUTHORIZATION};
use http_body::Body;
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use tokio_util::task::AbortOnDropHandle;
use tower::Service;

use super::{
    body::ResponseBody,
    connector::{ConnectError, Connector},
    dialer::{Dialer, Tcp},
    generation::IdentityGeneration,
    identity::IdentityError,
    settings::Settings,
};
use crate::source::handle::CredentialSource;

/// How long a connection without a request is kept. kube-apiserver closes it after 90 seconds, which is hyper's default too: a request
/// that cannot be repeated could be sent on a connection that ends.
const IDLE: Duration = Duration::from_secs(60);

/// Most bytes that a connection reads ahead, and of the head of an answer. By default, 400 KiB of an answer that nothing reads wait
/// in each.
const BUFFER: usize = 64 * 1024;

/// An HTTP/1.1 client whose connections present the newest certificate of a source.
///
/// - When the certificate changes, new requests use new connections. Idle old connections are closed immediately, busy ones
///   when they become idle, and all of them after [`Settings::drain`]. Streams and upgrades count as busy.
/// - When a certificate comes back before that, its connections stay.
/// - A change of the token, or of the PEM text of the same certificate, closes nothing.
///
/// It presents the certificate to every server that it connects to, and it sends no token;
/// [`Authenticate`](crate::Authenticate) does. Clones share the connections.
pub struct RotatingClient<B, D = Tcp> {
    pools: Arc<IdentityPools<B, D>>,
    /// Replaces the pools also while there are no requests. Ends with the last clone.
    follower: Arc<AbortOnDropHandle<()>>,
}

struct IdentityPools<B, D> {
    connector: Connector<D>,
    current: Mutex<IdentityPool<B, D>>,
}

struct IdentityPool<B, D> {
    generation: Arc<IdentityGeneration>,
    client: Client<Connector<D>, B>,
}

/// Why there is no response: no credential is valid, its certificate cannot be presented, or the connection failed or ended
/// before the response. `source()` says more.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SendError(#[from] Problem);

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the connection needs a credential, but no credential is valid")]
    Expired,
    #[error("the credential's certificate cannot be presented")]
    Identity(#[from] IdentityError),
    #[error("the request failed")]
    Failed(#[source] legacy::Error),
}

impl SendError {
    /// Whether there was no connection, so that the request was not sent. Others can be sent again if they are idempotent.
    pub fn is_connect(&self) -> bool {
        match &self.0 {
            Problem::Expired | Problem::Identity(_) => true,
            Problem::Failed(error) => error.is_connect(),
        }
    }

    /// Whether no connection was made in time. For credbroker's proxy.
    #[doc(hidden)]
    pub fn is_connect_timeout(&self) -> bool {
        let mut cause = self.source();
        while let Some(error) = cause {
            if let Some(ConnectError::Timeout { .. }) = error.downcast_ref() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl<B> RotatingClient<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A client over TCP. Needs a tokio runtime.
    pub fn new(source: CredentialSource, settings: Settings) -> Self {
        Self::over(Tcp::default(), source, settings)
    }
}

impl<B, D> RotatingClient<B, D>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    D: Dialer,
{
    /// A client over the connections of `dialer`. Needs a tokio runtime.
    pub fn over(dialer: D, source: CredentialSource, settings: Settings) -> Self {
        let follows = source.clone();
        let connector = Connector::new(dialer, source, settings);
        let generations = connector.generations();
        let generation = generations.current().unwrap_or_else(|_| generations.known());
        let current = Mutex::new(IdentityPool::new(generation, &connector));
        let pools = Arc::new(IdentityPools { connector, current });
        #[expect(clippy::disallowed_methods, reason = "ends with the last clone of the client")]
        let follower = tokio::spawn(follow(follows, Arc::downgrade(&pools)));
        Self { pools, follower: Arc::new(AbortOnDropHandle::new(follower)) }
    }
}

impl<B, D> IdentityPools<B, D>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    D: Dialer,
{
    /// The pool of the newest certificate. The previous pool closes its idle connections as it is dropped.
    fn current(&self) -> Result<Client<Connector<D>, B>, IdentityError> {
        let mut pool = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, or an older generation could replace a newer one.
        let generation = self.connector.generations().current()?;
        if !Arc::ptr_eq(&generation, &pool.generation) {
            *pool = IdentityPool::new(generation, &self.connector);
        }
        Ok(pool.client.clone())
    }
}

impl<B, D> IdentityPool<B, D>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    D: Dialer,
{
    fn new(generation: Arc<IdentityGeneration>, connector: &Connector<D>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(BUFFER)
            .pool_max_idle_per_host(connector.generations().settings.idle)
            .build(connector.clone());
        Self { generation, client }
    }
}

async fn follow<B, D>(mut source: CredentialSource, pools: Weak<IdentityPools<B, D>>)
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    D: Dialer,
{
    loop {
        source.changed().await;
        let Some(pools) = pools.upgrade() else { return };
        // With a certificate that cannot be presented, every request fails.
        drop(pools.current());
    }
}

impl<B, D> Service<Request<B>> for RotatingClient<B, D>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    D: Dialer,
{
    type Response = Response<ResponseBody>;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, SendError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let generations = self.pools.connector.generations();
        let needs_none =
            request.headers().contains_key(AUTHORIZATION) && generations.known().identity.is_none();
        if generations.source.current().is_none() && !needs_none {
            return Box::pin(async { Err(Problem::Expired.into()) });
        }
        match self.pools.current() {
            Ok(client) => {
                let response = client.request(request);
                Box::pin(async move { Ok(response.await.map_err(Problem::Failed)?.map(ResponseBody)) })
            }
            Err(error) => Box::pin(async move { Err(Problem::from(error).into()) }),
        }
    }
}

impl<B, D> Clone for RotatingClient<B, D> {
    fn clone(&self) -> Self {
        Self { pools: Arc::clone(&self.pools), follower: Arc::clone(&self.follower) }
    }
}

impl<B, D> fmt::Debug for RotatingClient<B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatingClient").field("connector", &self.pools.connector).finish_non_exhaustive()
    }
}
