//! One call on a connection: from its headers to the answer of a service.

mod admit;

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicUsize},
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Request, Response, header::CONTENT_TYPE, request::Parts};
use hyper::body::Incoming;
use tonic::body::Body;
use tower::Service as _;

use super::{
    access::Access,
    connection::{ConnectionRefusal, Connections},
    credentials::GET,
    follow::WatchSlots,
    preencoded::{self, Preencoded},
    request_body::{Question, keep_what_is_read},
    response_body::{Answer, Watching},
    rpc_metrics::{answered, tally},
    status,
    traffic::{Call, Traffic},
};
use credbroker_observe::metrics::Rpc;

/// Prefix of streaming methods that this module counts as watches. Their requests are streams too.
const REFLECTION: &str = "/grpc.reflection.";

const GRPC: &str = "application/grpc";

/// State that the calls of one connection share.
pub(super) struct Exchanges {
    pub(super) connections: Connections,
    pub(super) watches: WatchSlots,
    pub(super) access: Arc<Access>,
    pub(super) refusal: Option<ConnectionRefusal>,
    pub(super) traffic: Arc<Traffic>,
    /// The calls that were denied because the peer has no right.
    pub(super) denials: AtomicUsize,
}

/// One call. A panic ends it with INTERNAL, and no other call.
pub(super) fn exchange(
    shared: Arc<Exchanges>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Answer>, Infallible>> {
    let (rpc, survivor) = (Rpc::of(request.uri().path()), Arc::clone(&shared));
    let defect = move |_panic| {
        let call = Call::of(&survivor.traffic);
        survivor.respond(rpc, status::defect().into_http(), call, Watching::default())
    };
    // What calls share is consistent whenever its lock is free.
    let call = AssertUnwindSafe(serve_call(shared, request)).catch_unwind();
    call.map(move |response| Ok(response.unwrap_or_else(defect)))
}

/// Waits for room for the answer, reads the request, then calls the service, which finds the peer in the request's
/// extensions.
///
/// Not an `async fn`: its future would hold the arguments twice.
fn serve_call(shared: Arc<Exchanges>, request: Request<Incoming>) -> impl Future<Output = Response<Answer>> {
    let call = Call::of(&shared.traffic);
    let (admitted, (mut head, body)) = (shared.admit(request.uri().path()), request.into_parts());
    async move {
        // Before the body is read, so that a waiting request holds only what the peer may send ahead.
        shared.room(&mut head).await;
        let question = match admitted {
            Ok((false, slot)) => {
                Question::whole(body, &mut head, &shared.traffic).await.map(|whole| (whole, slot))
            }
            Ok((true, slot)) => {
                Ok((Question::stream(body, &shared.traffic, &shared.connections.draining), slot))
            }
            Err(status) => Err(status),
        };
        let (question, slot) = match question {
            Ok(question) => question,
            Err(status) => {
                let rpc = Rpc::of(head.uri.path());
                return shared.respond(rpc, status.into_http(), call, Watching::default());
            }
        };
        if let Some(frame) = shared.recall(&head, &question) {
            answered(&shared.connections.services.metrics, Rpc::GET);
            return whole(Answer::whole(frame, &shared.traffic, call));
        }
        let loss = slot.as_ref().and_then(|_| shared.loss(head.uri.path()));
        // Boxed, because a call that waits for room would reserve its space too.
        Box::pin(shared.answer(head, question, call, Watching::new(slot, loss))).await
    }
}

/// Whether tonic would accept the head of this request. If not, tonic gets the request and refuses it.
fn is_grpc(head: &Parts) -> bool {
    let content = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    head.method == Method::POST && content.is_some_and(|content| content.starts_with(GRPC.as_bytes()))
}

fn whole(answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

impl Exchanges {
    async fn room(&self, head: &mut Parts) {
        if self.traffic.has_room() {
            return;
        }
        // A `HeaderMap` reserves space for more headers than a request has, and a thousand requests may wait.
        keep_what_is_read(head);
        let few: Box<[_]> = mem::take(&mut head.headers).into_iter().collect();
        loop {
            let room = Box::pin(self.traffic.room());
            if self.traffic.has_room() {
                self.traffic.pass_on();
                break;
            }
            room.await;
        }
        head.headers.extend(few);
    }

    /// The framed answer from memory. A cache hit is only a look-up, so it bypasses the services.
    fn recall(&self, head: &Parts, question: &Question) -> Option<Bytes> {
        match question {
            Question::Whole(body) if head.uri.path() == GET => {
                let message = preencoded::message(body).filter(|_| is_grpc(head))?;
                self.connections.services.memory.recall(&self.access, message)
            }
            _ => None,
        }
    }

    /// The answer of a service. Its first message is encoded if it is ready.
    async fn answer(
        &self,
        head: Parts,
        question: Question,
        call: Call,
        watching: Watching,
    ) -> Response<Answer> {
        let rpc = Rpc::of(head.uri.path());
        let mut request = Request::from_parts(head, question);
        request.extensions_mut().insert(Arc::clone(&self.access));
        request.extensions_mut().insert(self.watches.clone());
        let services = &self.connections.services;
        let is_reflection = request.uri().path().starts_with(REFLECTION);
        let mut routes = if is_reflection { services.reflection() } else { &services.routes }.clone();
        let mut response = routes.call(request).await.unwrap_or_else(|never| match never {});
        Preencoded::put_in_place(&mut response);
        let mut response = self.respond(rpc, response, call, watching);
        poll_fn(|cx| response.body_mut().poll_ahead(cx)).await;
        response
    }

    /// Counts an answer by its headers.
    fn respond(
        &self,
        rpc: Rpc,
        response: Response<Body>,
        call: Call,
        watching: Watching,
    ) -> Response<Answer> {
        tally(&self.connections.services.metrics, rpc, &self.access.peer, response.headers());
        let draining = self.connections.draining.clone();
        response.map(|body| Answer::new(body, &self.traffic, draining, call, watching))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// A peer can have a thousand calls in progress.
    #[test]
    fn a_call_is_small() {
        let size = size_of_future(exchange);
        assert!(size <= 528, "{size} bytes");
    }
}
