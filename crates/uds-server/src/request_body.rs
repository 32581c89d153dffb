//! The body of a request: read completely before a service sees it, within a deadline and the limits of its connection.

use std::{
    future::poll_fn,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, request::Parts};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use crate::{
    account::Refusal,
    traffic::{Traffic, Unfinished},
};

/// Maximum size of a request in bytes.
pub const REQUEST: usize = 256 * 1024;
/// Time from the headers of a request to its last byte.
const DEADLINE: Duration = Duration::from_secs(10);
/// The headers that services and tonic read.
const READ: [&str; 5] = ["content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "te"];

/// The body of a request as a service receives it.
#[derive(Debug)]
pub struct RequestBody(Content);

#[derive(Debug)]
enum Content {
    /// The complete body.
    Whole(Bytes),
    /// Message by message, until the stream ends.
    Stream(Box<Stream>),
}

/// A body that ends when the peer ends it or the server drains.
#[derive(Debug)]
struct Stream {
    body: Incoming,
    received: usize,
    unfinished: Unfinished,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl RequestBody {
    /// Reads the request of a method that takes one message.
    ///
    /// # Errors
    ///
    /// The body failed or took too long, or the unfinished requests of the connection are too large.
    ///
    /// Not an `async fn`: its future would hold the body twice.
    pub(crate) fn whole<'a>(
        body: Incoming,
        head: &'a mut Parts,
        traffic: &'a Arc<Traffic>,
    ) -> impl Future<Output = Result<Self, Status>> + use<'a> {
        let mut receiving = Receiving { body, bytes: BytesMut::new(), unfinished: None };
        async move {
            // Polled without a timer first, because the body has usually arrived.
            let now = poll_fn(|cx| Poll::Ready(receiving.poll(traffic, cx))).await;
            let received = match now {
                Poll::Ready(received) => received,
                Poll::Pending => {
                    keep_what_is_read(head);
                    let rest = poll_fn(|cx| receiving.poll(traffic, cx));
                    Box::pin(timeout(DEADLINE, rest))
                        .await
                        .unwrap_or_else(|_elapsed| Err(traffic.status(Refusal::Incomplete(DEADLINE))))
                }
            };
            received.map(|bytes| Self(Content::Whole(bytes)))
        }
    }

    /// The complete body; `None`: it comes message by message.
    pub fn complete(&self) -> Option<&Bytes> {
        match &self.0 {
            Content::Whole(bytes) => Some(bytes),
            Content::Stream(_) => None,
        }
    }

    /// The request of a method that takes a stream of messages.
    pub(crate) fn stream(body: Incoming, traffic: &Arc<Traffic>, draining: &CancellationToken) -> Self {
        let draining = Box::pin(draining.clone().cancelled_owned());
        let unfinished = Unfinished::new(traffic);
        Self(Content::Stream(Box::new(Stream { body, received: 0, unfinished, draining })))
    }
}

struct Receiving {
    body: Incoming,
    /// A copy, because a received chunk may be a small piece of a large buffer.
    bytes: BytesMut,
    unfinished: Option<Unfinished>,
}

impl Receiving {
    /// Counts the bytes of an unfinished request.
    fn counts(&mut self, traffic: &Arc<Traffic>) -> Result<(), Status> {
        let unfinished = self.unfinished.get_or_insert_with(|| Unfinished::new(traffic));
        unfinished.grow_to(self.bytes.capacity())
    }

    fn poll(&mut self, traffic: &Arc<Traffic>, cx: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => break,
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(Status::from_error(Box::new(error)))),
            };
            let Ok(data) = frame.into_data() else { continue };
            let is_last = self.body.is_end_stream();
            if is_last && self.bytes.is_empty() {
                return Poll::Ready(Ok(data));
            }
            self.bytes.extend_from_slice(&data);
            self.counts(traffic)?;
            // Enough for the service to refuse a request that is too large: it reads the length before the message.
            if is_last || self.bytes.len() > REQUEST + 5 {
                break;
            }
        }
        Poll::Ready(Ok(self.bytes.split().freeze()))
    }
}

/// Keeps of the head of a waiting request only what services and tonic read, without the buffer that the peer sent it in.
pub(crate) fn keep_what_is_read(head: &mut Parts) {
    let headers = mem::take(&mut head.headers);
    for name in READ {
        let value = headers.get(name).and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
        head.headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
    }
    // Without an authority, which no service reads.
    let path = head.uri.path_and_query().map(ToString::to_string);
    head.uri = path.and_then(|path| path.parse().ok()).unwrap_or_default();
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.draining.as_mut().poll(cx));
            return Poll::Ready(None);
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| Status::from_error(Box::new(error)))?;
            self.received += frame.data_ref().map_or(0, Bytes::len);
            // Bytes count until the stream ends, because the reader may keep bytes that it has not decoded.
            self.unfinished.grow_to(self.received)?;
            Ok(frame)
        }))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut self.get_mut().0 {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
            Content::Stream(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Stream(stream) => stream.body.is_end_stream(),
        }
    }
}
