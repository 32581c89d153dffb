//! Limits of a response of the hub: decoded bytes, and time.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tower::{BoxError, Layer, Service};

/// Bytes of one response, without compression. An API server stores objects of 1.5 MiB at most.
const PAGE: usize = 16 << 20;
/// Bytes of one watch event: an object, and what the API server adds to it.
const EVENT: usize = 2 << 20;
/// Number of known ClusterProfiles.
pub(super) const PROFILES: usize = 20_000;
/// Bytes of all known ClusterProfiles.
pub(super) const TOTAL: usize = 256 << 20;

/// An exceeded limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Excess {
    /// The size of a response.
    #[error("a response is larger than the limit of {} MiB", PAGE >> 20)]
    Page,
    /// The size of a watch event.
    #[error("a watch event is larger than the limit of {} MiB", EVENT >> 20)]
    Event,
    /// The time for one response, or for a whole list.
    #[error("the request took longer than the limit of {0:?}")]
    Time(Duration),
    /// The number of pages in a row without progress.
    #[error(
        "the list does not end: the hub sent {0} pages in a row without a new ClusterProfile, each with a `continue` token"
    )]
    EmptyPages(u32),
    /// A page whose `continue` token is that of the request for it.
    #[error("the list does not end: the hub sent a page whose `continue` token leads to the same page")]
    RepeatedPage,
    /// The number of pages.
    #[error("the list has more than {0} pages, which is the limit")]
    Pages(u32),
    /// The number of profiles.
    #[error(
        "the hub has more than {PROFILES} ClusterProfiles, which is the limit; select fewer with `namespaces` or `labelSelector`"
    )]
    Profiles,
    /// The bytes of all profiles.
    #[error(
        "the ClusterProfiles are larger than the limit of {} MiB in total; select fewer with `namespaces` or `labelSelector`",
        TOTAL >> 20
    )]
    Total,
}

/// A layer that limits each response of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Time limit from the head of a response to its end.
    pub(super) answer: Duration,
    /// The same for a watch.
    pub(super) watch: Duration,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, bounds: *self }
    }
}

/// A client's service whose responses are limited.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    bounds: Bounds,
}

impl<S, Q, B> Service<Request<Q>> for Bounded<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<BoundedBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|part| part == "watch=true");
        let limit = if is_watch { self.bounds.watch } else { self.bounds.answer };
        let answered = self.inner.call(request);
        let bounded =
            move |body| BoundedBody { body, is_watch, received: 0, limit, late: Box::pin(sleep(limit)) };
        async move { Ok(answered.await?.map(bounded)) }.boxed()
    }
}

/// A body that fails when it exceeds a limit.
#[derive(Debug)]
pub(super) struct BoundedBody<B> {
    body: B,
    is_watch: bool,
    /// Bytes of the body, or of the current event.
    received: usize,
    limit: Duration,
    late: Pin<Box<Sleep>>,
}

impl<B> BoundedBody<B> {
    fn note(&mut self, data: &[u8]) -> Result<(), Excess> {
        if !self.is_watch {
            self.received += data.len();
            return if self.received > PAGE { Err(Excess::Page) } else { Ok(()) };
        }
        for (index, part) in data.split(|byte| *byte == b'\n').enumerate() {
            self.received = if index == 0 { self.received + part.len() } else { part.len() };
            if self.received > EVENT {
                return Err(Excess::Event);
            }
        }
        Ok(())
    }
}

impl<B> HttpBody for BoundedBody<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // Checked first, so that a body that never pauses is limited too.
        if this.late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Excess::Time(this.limit).into())));
        }
        Pin::new(&mut this.body).poll_frame(cx).map(|frame| {
            Some(frame?.map_err(Into::into).and_then(|frame| {
                this.note(frame.data_ref().map(Bytes::as_ref).unwrap_or_default())?;
                Ok(frame)
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
