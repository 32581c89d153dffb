//! One stack for each endpoint, swapped as a whole.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use ::kube::client::Body;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use hyper::body::Incoming;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::{BoxError, Service};

use super::{
    BuildError, endpoint,
    stack::{Recipe, Stack},
};
use crate::{Credential, CredentialSource, authenticate::service::current};

/// Why a request was not answered, that is not the network's fault.
///
/// ```no_run
/// # fn example(error: tower::BoxError) {
/// use credbroker_client::kube::EndpointError;
///
/// let send_it_again = matches!(error.downcast_ref(), Some(EndpointError::Moved));
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The request was on its way to an endpoint that the cluster has left, and the drain deadline came. Send it again.
    #[error("the cluster moved while the request was on its way to the old endpoint; send it again")]
    Moved,
    /// What the broker says of the cluster cannot be used, so nothing is sent to it. Mend its `ClusterProfile`.
    #[error("the cluster's endpoint cannot be used")]
    Unusable(#[source] Arc<BuildError>),
}

/// Sends each request to where the credential is for that is current when the request begins.
#[derive(Clone)]
pub(super) struct Moving {
    places: Arc<Places>,
    /// Leaves an endpoint while there are no requests, too. Ends with the last clone.
    _follower: Arc<AbortOnDropHandle<()>>,
}

struct Places {
    source: CredentialSource,
    recipe: Recipe,
    current: Mutex<Option<Place>>,
}

/// An endpoint, and the only way to it: a stack whose source shows nothing but credentials that came with it.
#[derive(Clone)]
struct Place {
    /// Any credential of this endpoint.
    credential: Arc<Credential>,
    stack: Result<Stack, Arc<BuildError>>,
    /// Every connection and request to it is over.
    ends: CancellationToken,
}

impl Moving {
    pub(super) fn new(source: CredentialSource, recipe: Recipe) -> Self {
        let follows = source.clone();
        let places = Arc::new(Places { source, recipe, current: Mutex::default() });
        #[expect(clippy::disallowed_methods, reason = "ends with the last clone of the client")]
        let follower = tokio::spawn(follow(follows, Arc::downgrade(&places)));
        Self { places, _follower: Arc::new(AbortOnDropHandle::new(follower)) }
    }
}

impl Recipe {
    /// To where `credential` is for, in the name of `source` for as long as that is there.
    pub(super) fn stack_to(
        mut self,
        source: &CredentialSource,
        credential: Arc<Credential>,
        ends: CancellationToken,
    ) -> Result<Stack, BuildError> {
        let cluster = credential.cluster().ok_or(BuildError::NoEndpoint)?;
        endpoint::apply(cluster, &mut self.config, self.plaintext)?;
        self.stack(source.at_endpoint_of(credential), ends)
    }
}

impl Places {
    /// Where the newest credential is for; `seen` is the newest that the caller knows of.
    fn current(&self, seen: Arc<Credential>) -> Place {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock: whoever waited for it may hold an older one by now.
        let newest = self.source.current().unwrap_or(seen);
        if let Some(place) = &*current
            && newest.is_for_endpoint_of(&place.credential)
        {
            return place.clone();
        }
        let ends = CancellationToken::new();
        let stack = self.recipe.clone().stack_to(&self.source, Arc::clone(&newest), ends.clone());
        let next = Place { credential: newest, stack: stack.map_err(Arc::new), ends };
        if let Some(left) = current.replace(next.clone()) {
            leave(left, self.recipe.drain);
        }
        next
    }
}

/// Its idle connections close with the stack; the others have until the deadline.
fn leave(place: Place, drain: Duration) {
    let ends = place.ends;
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

async fn follow(mut source: CredentialSource, places: Weak<Places>) {
    loop {
        source.changed().await;
        let Some(places) = places.upgrade() else { return };
        if let Some(credential) = source.current() {
            drop(places.current(credential));
        }
    }
}

impl Place {
    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
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

impl Service<Request<Body>> for Moving {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let places = Arc::clone(&self.places);
        Box::pin(async move {
            let again = copy(&request);
            let place = places.current(current(&places.source).await?);
            let response = place.send(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED
                && let Some(again) = again
                && let Some(newest) = places.source.current()
                && !newest.is_for_endpoint_of(&place.credential)
            {
                return places.current(newest).send(again).await;
            }
            Ok(response)
        })
    }
}

/// Of what can be sent twice in our name.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let (is_ours, has_no_body) =
        (!request.headers().contains_key(AUTHORIZATION), http_body::Body::is_end_stream(request.body()));
    (is_ours && has_no_body).then(|| {
        let mut again = Request::new(Body::empty());
        again.method_mut().clone_from(request.method());
        again.uri_mut().clone_from(request.uri());
        again.headers_mut().clone_from(request.headers());
        again.extensions_mut().clone_from(request.extensions());
        again
    })
}

impl fmt::Debug for Moving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moving").field("source", &self.places.source).finish_non_exhaustive()
    }
}
