//! One request with a credential.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use tower::Service;

use super::{
    error::{AuthenticateError, Refusal},
    policy::Policy,
    repeat::{Repeat, WithoutBody},
};
use crate::{credential::Credential, source::handle::CredentialSource, transport::BoxError};

/// How long a request waits for a credential.
const CREDENTIAL: Duration = Duration::from_secs(10);

/// An extension of a request that a program behind the API server answers. Its 401 says nothing about the credential: it is not
/// reported, and the request is not sent again. For credbroker's proxy.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct AnsweredElsewhere;

/// The credential that a request was sent with, beside its response.
#[derive(Clone, Debug)]
pub struct SentWith(pub Arc<Credential>);

/// The service of [`Authenticate`](super::Authenticate).
#[derive(Clone, Debug)]
pub struct Authenticated<S, R = WithoutBody> {
    pub(super) inner: S,
    pub(super) source: CredentialSource,
    pub(super) policy: Policy,
    pub(super) repeat: R,
}

impl<S, R, B, C> Service<Request<B>> for Authenticated<S, R>
where
    S: Service<Request<B>, Response = Response<C>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Repeat<B>,
    B: Send + 'static,
    C: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Only `self.inner` is known to be ready, so it goes with the request, and the clone stays.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if request.headers().contains_key(AUTHORIZATION) {
            let response = inner.call(request);
            return Box::pin(async move { response.await.map_err(Into::into) });
        }
        if let Err(error) = self.policy.check_scheme(request.uri()) {
            return Box::pin(async { Err(AuthenticateError::from(error).into()) });
        }
        let (head, body) = request.into_parts();
        let again = self.repeat.copy(&body).map(|body| Request::from_parts(head.clone(), body));
        let request = Request::from_parts(head, body);
        let (source, policy) = (self.source.clone(), self.policy.clone());
        Box::pin(send(inner, source, policy, request, again, R::is_complete))
    }
}

async fn send<S, B, C>(
    mut inner: S,
    source: CredentialSource,
    policy: Policy,
    mut request: Request<B>,
    again: Option<Request<B>>,
    is_complete: fn(&B) -> bool,
) -> Result<Response<C>, BoxError>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Error: Into<BoxError>,
{
    let is_answered_elsewhere = request.extensions().get::<AnsweredElsewhere>().is_some();
    let credential = current(&source).await?;
    policy.check_cluster(request.uri(), credential.cluster()).map_err(AuthenticateError::from)?;
    credential.authorize(request.headers_mut());
    let mut response = inner.call(request).await.map_err(Into::into)?;
    response.extensions_mut().insert(SentWith(Arc::clone(&credential)));
    if response.status() != StatusCode::UNAUTHORIZED || is_answered_elsewhere {
        return Ok(response);
    }
    source.reject(credential.generation());
    let again = again.filter(|again| is_complete(again.body()));
    let Some(mut again) = again else { return Ok(response) };
    let Some(newer) = source.replace(credential.generation()).await else { return Ok(response) };
    // The newer credential may be for another cluster.
    if policy.check_cluster(again.uri(), newer.cluster()).is_err() {
        return Ok(response);
    }
    drop(response);
    newer.authorize(again.headers_mut());
    poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
    let mut response = inner.call(again).await.map_err(Into::into)?;
    response.extensions_mut().insert(SentWith(Arc::clone(&newer)));
    if response.status() == StatusCode::UNAUTHORIZED {
        source.reject(newer.generation());
    }
    Ok(response)
}

async fn current(source: &CredentialSource) -> Result<Arc<Credential>, AuthenticateError> {
    if let Some(credential) = source.current() {
        return Ok(credential);
    }
    source.ready_within(CREDENTIAL).await.map_err(|error| Refusal::NoCredential(error).into())
}
