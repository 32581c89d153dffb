//! One call on a connection: from its headers to the answer of the program.

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE, request::Parts};
use hyper::body::{Body as _, Incoming};
use tonic::{Code, Status, body::Body};

use crate::{
    account::Refusal,
    program::{CallKind, Program},
    request_body::{keep_what_is_read, messages, whole},
    response_body::{ResponseBody, Watching},
    traffic::{Call, Traffic, WatchSlot, WatchSlots},
};

/// A connection ends after so many calls that the program denied before they were read.
const DENIALS: usize = 16;

/// State that the calls of one connection share.
pub(crate) struct Exchanges<P: Program> {
    pub(crate) program: Arc<P>,
    pub(crate) watches: WatchSlots,
    pub(crate) peer: Arc<P::Peer>,
    /// Why every request of the connection is refused. Decided once, when it is accepted.
    pub(crate) refusal: Option<Refusal>,
    pub(crate) traffic: Arc<Traffic>,
    /// The calls that the program denied.
    pub(crate) denials: AtomicUsize,
}

/// One call. A panic ends it with INTERNAL, and no other call.
pub(crate) fn exchange<P: Program>(
    shared: Arc<Exchanges<P>>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> {
    let survivor = Arc::clone(&shared);
    let (method, span) = shared.program.begin(request.uri().path(), request.headers());
    let defect = move |_panic| {
        let call = Call::of(&survivor.traffic);
        survivor.respond(method, P::status(Refusal::Defect).into_http(), call, Watching::default())
    };
    // What calls share is consistent whenever its lock is free.
    let call = AssertUnwindSafe(serve_call(shared, method, request)).catch_unwind();
    P::within(span, call.map(move |response| Ok(response.unwrap_or_else(defect))))
}

/// Waits for room for the answer, reads the request, then calls the program.
///
/// Not an `async fn`: its future would hold the arguments twice.
fn serve_call<P: Program>(
    shared: Arc<Exchanges<P>>,
    method: P::Method,
    request: Request<Incoming>,
) -> impl Future<Output = Response<ResponseBody>> {
    let call = Call::of(&shared.traffic);
    let (admitted, (mut head, body)) = (shared.admit(request.uri().path()), request.into_parts());
    async move {
        // Before the body is read, so that a waiting request holds only what the peer may send ahead.
        shared.room(&mut head).await;
        let traffic = &shared.traffic;
        let received = match admitted {
            Err(status) => Err(status),
            Ok((CallKind::Stream, slot)) => Ok((messages(body, traffic, P::status), slot)),
            Ok((_, slot)) => match whole(body, &mut head, traffic, P::status).await {
                Err(status) => Err(status),
                Ok(bytes) => match shared.program.recall(&shared.peer, &mut head, &bytes) {
                    Some(frame) => {
                        let mut response = Response::new(ResponseBody::whole(frame, call, P::status));
                        let grpc = HeaderValue::from_static("application/grpc");
                        response.headers_mut().insert(CONTENT_TYPE, grpc);
                        return response;
                    }
                    None => Ok((Body::new(http_body_util::Full::new(bytes)), slot)),
                },
            },
        };
        // Boxed, because a call that waits for room would reserve its space too.
        Box::pin(shared.answer(method, head, received, call)).await
    }
}

impl<P: Program> Exchanges<P> {
    /// The kind of a call that is served, and the watch slot that its answer takes.
    fn admit(&self, path: &str) -> Result<(CallKind, Option<WatchSlot>), Status> {
        if let Some(Refusal::Full(full)) = self.refusal {
            return Err(P::status(self.traffic.refuse(full)));
        }
        let kind = self.program.admit(&self.peer, path).inspect_err(|status| {
            let is_denied = status.code() == Code::PermissionDenied;
            if is_denied && self.denials.fetch_add(1, Ordering::Relaxed) + 1 == DENIALS {
                self.traffic.end.cancel();
            }
        })?;
        if let Some(why) = self.refusal {
            return Err(P::status(why));
        }
        self.traffic.grow().map_err(P::status)?;
        let slot = match kind {
            CallKind::Call => None,
            CallKind::Watch | CallKind::Stream => Some(self.watches.acquire().map_err(P::status)?),
        };
        Ok((kind, slot))
    }

    async fn room(&self, head: &mut Parts) {
        if self.traffic.has_room() {
            return;
        }
        // A `HeaderMap` reserves space for more headers than a request has, and a thousand requests may wait.
        keep_what_is_read(head);
        let few: Box<[_]> = mem::take(&mut head.headers).into_iter().collect();
        Box::pin(Arc::clone(&self.traffic).room()).await;
        head.headers.extend(few);
    }

    /// The answer of the program to what was received. Its first message is encoded if it is ready.
    async fn answer(
        &self,
        method: P::Method,
        head: Parts,
        received: Result<(Body, Option<WatchSlot>), Status>,
        mut call: Call,
    ) -> Response<ResponseBody> {
        self.traffic.uncork();
        let program = &self.program;
        let charged = received.and_then(|(body, slot)| {
            let size = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
            call.charge().charge(size).map_err(P::status)?;
            Ok((body, slot))
        });
        let (body, slot) = match charged {
            Ok(charged) => charged,
            Err(status) => return self.respond(method, status.into_http(), call, Watching::default()),
        };
        let loss = slot.as_ref().and_then(|_| program.loss(&self.peer, head.uri.path()));
        let mut request = Request::from_parts(head, body);
        request.extensions_mut().insert(self.watches.clone());
        request.extensions_mut().insert(Arc::clone(call.charge()));
        let response = program.call(&self.peer, request).await;
        let mut response = self.respond(method, response, call, (loss, slot));
        poll_fn(|cx| response.body_mut().poll_ahead(cx)).await;
        response
    }

    fn respond(
        &self,
        method: P::Method,
        response: Response<Body>,
        call: Call,
        watching: Watching,
    ) -> Response<ResponseBody> {
        self.program.answered(&self.peer, method, response.headers());
        response.map(|body| ResponseBody::new(body, call, watching, P::status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Nothing;

    fn size_of_future<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// A peer can have a thousand calls in progress.
    #[test]
    fn a_call_is_small() {
        let size = size_of_future(exchange::<Nothing>);
        assert!(size <= 528, "{size} bytes");
    }
}
