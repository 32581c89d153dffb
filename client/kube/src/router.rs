//! Requests to a cluster that may move: one stack for each endpoint, replaced as a whole.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use credbroker_client::{AnsweredElsewhere, Credential, CredentialSource, Error, tls::ResponseBody};
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::Service;

use crate::{
    BoxError,
    body::RequestBody,
    endpoint,
    error::BuildError,
    stack::{Stack, StackConfig},
};

/// How long a request waits for a credential.
const CREDENTIAL: Duration = Duration::from_secs(10);

/// Why a request was not answered, other than an error of the network. kube wraps it in `kube::Error::Service`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The cluster moved, and the drain deadline passed before the old endpoint answered. Send the request again.
    #[error("the cluster moved before the old endpoint answered the request; send it again")]
    Moved,
    /// No credential is valid, and none arrived within ten seconds. Send the request again later.
    #[error("the request needs a credential, but no credential is valid")]
    NoCredential(#[source] Error),
    /// The endpoint from the broker cannot be used, so nothing is sent. Correct the `ClusterProfile`.
    #[error("the cluster's endpoint cannot be used")]
    Unusable(#[source] Arc<BuildError>),
}

/// Sends each request to the endpoint of the credential that is current when the request begins.
pub struct EndpointRouter<B> {
    endpoints: Arc<Endpoints<B>>,
    /// Leaves an old endpoint also while there are no requests. Ends with the last clone.
    follower: Arc<AbortOnDropHandle<()>>,
}

struct Endpoints<B> {
    source: CredentialSource,
    config: StackConfig,
    /// Cancelled when all connections to all endpoints must end.
    ends: CancellationToken,
    current: Mutex<Option<Endpoint<B>>>,
}

/// An endpoint, and a stack that uses only credentials that came with it.
struct Endpoint<B> {
    /// One of the credentials that came with the endpoint.
    credential: Arc<Credential>,
    stack: Result<Stack<B>, Arc<BuildError>>,
    /// Cancelled when all connections and requests to it must end.
    ends: CancellationToken,
}

impl<B: RequestBody> EndpointRouter<B> {
    pub(crate) fn new(source: CredentialSource, config: StackConfig) -> Self {
        Self::until(source, config, CancellationToken::new())
    }

    pub(crate) fn until(source: CredentialSource, config: StackConfig, ends: CancellationToken) -> Self {
        let follows = source.clone();
        let endpoints = Arc::new(Endpoints { source, config, ends, current: Mutex::default() });
        #[expect(clippy::disallowed_methods, reason = "ends with the last clone of the client")]
        let follower = tokio::spawn(follow(follows, Arc::downgrade(&endpoints)));
        Self { endpoints, follower: Arc::new(AbortOnDropHandle::new(follower)) }
    }
}

/// The stack to the endpoint of `credential`, restricted to credentials of that endpoint.
pub(crate) fn stack_for<B: RequestBody>(
    mut config: StackConfig,
    source: &CredentialSource,
    credential: Arc<Credential>,
    ends: CancellationToken,
) -> Result<Stack<B>, BuildError> {
    let cluster = credential.cluster().ok_or(BuildError::NoEndpoint)?;
    endpoint::apply(cluster, &mut config.config, config.plaintext)?;
    config.build(source.at_endpoint_of(credential), ends)
}

impl<B: RequestBody> Endpoints<B> {
    /// The endpoint of the newest credential, or of `seen` if there is none now.
    fn current(&self, seen: Arc<Credential>) -> Endpoint<B> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock: the credential may have been replaced while this call waited for it.
        let newest = self.source.current().unwrap_or(seen);
        if let Some(endpoint) = &*current
            && newest.has_same_endpoint(&endpoint.credential)
        {
            return endpoint.clone();
        }
        let ends = self.ends.child_token();
        let stack = stack_for(self.config.clone(), &self.source, Arc::clone(&newest), ends.clone());
        let next = Endpoint { credential: newest, stack: stack.map_err(Arc::new), ends };
        if let Some(left) = current.replace(next.clone()) {
            leave(left.ends, self.config.leaving());
        }
        next
    }
}

/// Idle connections close as the stack is dropped. The others end at the drain deadline.
fn leave(ends: CancellationToken, drain: Duration) {
    if drain.is_zero() {
        ends.cancel();
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "ends at the drain deadline")]
    tokio::spawn(async move {
        sleep(drain).await;
        ends.cancel();
    });
}

async fn current(source: &CredentialSource) -> Result<Arc<Credential>, EndpointError> {
    if let Some(credential) = source.current() {
        return Ok(credential);
    }
    source.ready_within(CREDENTIAL).await.map_err(EndpointError::NoCredential)
}

async fn follow<B: RequestBody>(mut source: CredentialSource, endpoints: Weak<Endpoints<B>>) {
    loop {
        source.changed().await;
        let Some(endpoints) = endpoints.upgrade() else { return };
        if let Some(credential) = source.current() {
            drop(endpoints.current(credential));
        }
    }
}

impl<B: RequestBody> Endpoint<B> {
    async fn send(&self, request: Request<B>) -> Result<Response<ResponseBody>, BoxError> {
        let mut stack = self.stack.clone().map_err(EndpointError::Unusable)?;
        let answer = async {
            poll_fn(|cx| stack.poll_ready(cx)).await?;
            stack.call(request).await
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.ends.cancelled() => Err(EndpointError::Moved.into()),
        }
    }
}

impl<B: RequestBody> Service<Request<B>> for EndpointRouter<B> {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let endpoints = Arc::clone(&self.endpoints);
        Box::pin(async move {
            let is_answered_elsewhere = request.extensions().get::<AnsweredElsewhere>().is_some();
            let again = copy(&request).filter(|_| !is_answered_elsewhere);
            let endpoint = endpoints.current(current(&endpoints.source).await?);
            let response = endpoint.send(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED
                && let Some(again) = again.filter(|again| again.body().is_complete())
                && let Some(newest) = endpoints.source.current()
                && !newest.has_same_endpoint(&endpoint.credential)
            {
                return endpoints.current(newest).send(again).await;
            }
            Ok(response)
        })
    }
}

/// A copy of a request that can be sent twice: its body can be, and it has no `Authorization`.
fn copy<B: RequestBody>(request: &Request<B>) -> Option<Request<B>> {
    if request.headers().contains_key(AUTHORIZATION) {
        return None;
    }
    let mut again = Request::new(request.body().again()?);
    again.method_mut().clone_from(request.method());
    again.uri_mut().clone_from(request.uri());
    again.headers_mut().clone_from(request.headers());
    again.extensions_mut().clone_from(request.extensions());
    Some(again)
}

impl<B> Clone for EndpointRouter<B> {
    fn clone(&self) -> Self {
        Self { endpoints: Arc::clone(&self.endpoints), follower: Arc::clone(&self.follower) }
    }
}

impl<B> Clone for Endpoint<B> {
    fn clone(&self) -> Self {
        Self { credential: Arc::clone(&self.credential), stack: self.stack.clone(), ends: self.ends.clone() }
    }
}

impl<B> fmt::Debug for EndpointRouter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointRouter").field("source", &self.endpoints.source).finish_non_exhaustive()
    }
}
