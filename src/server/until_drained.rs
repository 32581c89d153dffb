//! Streams that would end only when the peer wishes (health's Watch, reflection) end with the broker: one of them left
//! open holds a drain up until its deadline.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

use super::status;

/// A service whose answers end when the broker drains.
#[derive(Clone, Debug)]
pub(super) struct UntilDrained<S> {
    service: S,
    draining: CancellationToken,
}

impl<S> UntilDrained<S> {
    pub(super) fn new(service: S, draining: CancellationToken) -> Self {
        Self { service, draining }
    }
}

impl<S: NamedService> NamedService for UntilDrained<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for UntilDrained<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Of the question too: whoever reads it holds on to the stream as long as it goes on.
        let question = request.map(|body| Ending::of(body, &self.draining, HeaderMap::new));
        let (answer, draining) = (self.service.call(question), self.draining.clone());
        Box::pin(async move { Ok(answer.await?.map(|body| Ending::of(body, &draining, farewell))) })
    }
}

/// A body that ends when the broker drains and there is nothing more of it at once.
struct Ending {
    body: Body,
    /// `None`: it has ended.
    draining: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    trailers: fn() -> HeaderMap,
}

impl Ending {
    fn of(body: Body, draining: &CancellationToken, trailers: fn() -> HeaderMap) -> Body {
        let draining = Some(Box::pin(draining.clone().cancelled_owned()));
        Body::new(Self { body, draining, trailers })
    }
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let Some(draining) = &mut this.draining else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        ready!(draining.as_mut().poll(cx));
        this.draining = None;
        Poll::Ready(Some(Ok(Frame::trailers((this.trailers)()))))
    }

    fn is_end_stream(&self) -> bool {
        self.draining.is_none() || self.body.is_end_stream()
    }
}

fn farewell() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // Our own text fits a header; without it the stream would end all the same.
    let _complete = status::draining().add_header(&mut trailers);
    trailers
}
