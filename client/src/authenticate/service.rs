//! One request in the name of a credential.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode, header::AUTHORIZATION, uri::Scheme};
use tokio::time::timeout;
use tower::{BoxError, Service};

use super::{Authenticate, AuthenticateError, Destination, Repeat, WithoutBody};
use crate::{Credential, CredentialSource, Error};

/// For a credential, while there is none.
const FOR_CREDENTIAL: Duration = Duration::from_secs(10);

/// The service of [`Authenticate`].
///
/// ```no_run
/// # fn example<S>(source: credbroker_client::CredentialSource, client: S) {
/// use credbroker_client::{Authenticate, Authenticated};
/// use tower::Layer;
///
/// let service: Authenticated<S> = Authenticate::new(source).layer(client);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Authenticated<S, R = WithoutBody> {
    pub(super) inner: S,
    pub(super) layer: Authenticate<R>,
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
        // The clone is not known to be ready; the one that is goes with the request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if request.headers().contains_key(AUTHORIZATION) {
            let response = inner.call(request);
            return Box::pin(async move { response.await.map_err(Into::into) });
        }
        if !self.layer.plaintext && request.uri().scheme() != Some(&Scheme::HTTPS) {
            let destination = Destination::of(request.uri());
            return Box::pin(async { Err(AuthenticateError::Plaintext { destination }.into()) });
        }
        let (head, body) = request.into_parts();
        let again = self.layer.repeat.copy(&body).map(|body| Request::from_parts(head.clone(), body));
        let request = Request::from_parts(head, body);
        Box::pin(send(inner, self.layer.source.clone(), request, again))
    }
}

async fn send<S, B, C>(
    mut inner: S,
    source: CredentialSource,
    mut request: Request<B>,
    again: Option<Request<B>>,
) -> Result<Response<C>, BoxError>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Error: Into<BoxError>,
{
    let credential = current(&source).await?;
    credential.authorize(request.headers_mut());
    let response = inner.call(request).await.map_err(Into::into)?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(response);
    }
    source.reject(credential.generation());
    let Some(mut again) = again else { return Ok(response) };
    let Some(newer) = source.replace(credential.generation()).await else { return Ok(response) };
    drop(response);
    newer.authorize(again.headers_mut());
    poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
    let response = inner.call(again).await.map_err(Into::into)?;
    if response.status() == StatusCode::UNAUTHORIZED {
        source.reject(newer.generation());
    }
    Ok(response)
}

pub(crate) async fn current(source: &CredentialSource) -> Result<Arc<Credential>, AuthenticateError> {
    if let Some(credential) = source.current() {
        return Ok(credential);
    }
    let limit = FOR_CREDENTIAL;
    let ready = timeout(limit, source.ready()).await.unwrap_or(Err(Error::Timeout { limit }));
    ready.map_err(|source| AuthenticateError::NoCredential { source })
}
