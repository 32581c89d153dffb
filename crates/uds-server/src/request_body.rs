//! The body of a request: read completely before a service sees it, within a deadline and the limits of its connection, or
//! passed on message by message.

use std::{future::poll_fn, mem, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::{HeaderName, HeaderValue, request::Parts};
use http_body_util::{BodyStream, StreamBody};
use hyper::body::{Body as _, Incoming};
use tokio::time::sleep;
use tonic::{Status, body::Body};

use crate::{
    account::Refusal,
    traffic::{Charge, Traffic},
};

/// The statuses of a program.
pub(crate) type Statuses = fn(Refusal) -> Status;

/// Maximum size of a request in bytes.
pub const REQUEST: usize = 256 * 1024;
/// Time from the headers of a request to its last byte.
const DEADLINE: Duration = Duration::from_secs(10);
/// The headers that services and tonic read.
const READ: [&str; 5] = ["content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "te"];

/// Reads the request of a method that takes one message. Not an `async fn`: its future would hold the body twice.
pub(crate) fn whole<'a>(
    mut body: Incoming,
    head: &'a mut Parts,
    traffic: &'a Arc<Traffic>,
    statuses: Statuses,
) -> impl Future<Output = Result<Bytes, Status>> {
    // A copy, because a received chunk may be a small piece of a large buffer.
    let mut bytes = BytesMut::new();
    async move {
        let (mut charge, mut deadline) = (None, None);
        loop {
            let frame = poll_fn(|cx| {
                let frame = Pin::new(&mut body).poll_frame(cx);
                if frame.is_ready() {
                    return frame.map(Ok);
                }
                // The body has usually arrived, so there is no timer before.
                let deadline = deadline.get_or_insert_with(|| {
                    traffic.uncork();
                    keep_what_is_read(head);
                    Box::pin(sleep(DEADLINE))
                });
                deadline.as_mut().poll(cx).map(|()| Err(statuses(Refusal::Incomplete(DEADLINE))))
            });
            let Some(frame) = frame.await? else { break };
            let frame = frame.map_err(|error| Status::from_error(Box::new(error)))?;
            let Ok(data) = frame.into_data() else { continue };
            let is_last = body.is_end_stream();
            if is_last && bytes.is_empty() {
                return Ok(data);
            }
            let before = bytes.capacity();
            bytes.extend_from_slice(&data);
            let charge = charge.get_or_insert_with(|| Charge::unfinished(traffic));
            charge.receive(bytes.capacity() - before).map_err(statuses)?;
            // Enough for the service to refuse a request that is too large: it reads the length before the message.
            if is_last || bytes.len() > REQUEST + 5 {
                break;
            }
        }
        Ok(bytes.freeze())
    }
}

/// The request of a method that takes a stream of messages. It ends when the peer ends it or the connection has to end.
pub(crate) fn stream(body: Incoming, traffic: &Arc<Traffic>, statuses: Statuses) -> Body {
    let charge = Charge::unfinished(traffic);
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame.map_err(|error| Status::from_error(Box::new(error)))?;
        // Bytes count until the stream ends, because the reader may keep bytes that it has not decoded.
        charge.receive(frame.data_ref().map_or(0, Bytes::len)).map_err(statuses)?;
        Ok::<_, Status>(frame)
    });
    Body::new(StreamBody::new(frames.take_until(traffic.end.clone().cancelled_owned())))
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
