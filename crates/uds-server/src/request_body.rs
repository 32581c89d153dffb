//! The body of a request: read completely before a service sees it, within a deadline and the limits of its connection, or
//! passed on message by message.

use std::{future::poll_fn, mem, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{future::OptionFuture, stream};
use http::{HeaderName, HeaderValue, request::Parts};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use tokio::time::sleep;
use tonic::{Status, body::Body, codegen::StdError};

use crate::{
    account::Refusal,
    traffic::{Charge, Traffic},
};

/// The statuses of a program.
pub(crate) type Statuses = fn(Refusal) -> Status;

/// Maximum size of a request in bytes.
pub const REQUEST: usize = 256 * 1024;
/// Maximum size in bytes of one message of a stream.
pub const MESSAGE: usize = 64 * 1024;
/// Bytes before a message: the compression flag and the length.
const HEAD: usize = 5;
/// Time from the headers of a request to its last byte, and from the first byte of a message of a stream to its last.
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
            if is_last || bytes.len() > REQUEST + HEAD {
                break;
            }
        }
        Ok(bytes.freeze())
    }
}

/// The request of a method that takes a stream of messages, passed on message by message. It fails when the connection has
/// to end.
pub(crate) fn messages(body: Incoming, traffic: &Arc<Traffic>, statuses: Statuses) -> Body {
    let frames = stream::unfold(Some(Messages::new(body, traffic)), move |reading| async move {
        let mut reading = reading?;
        match reading.next(statuses).await {
            Ok(message) => Some((Ok(Frame::data(message?)), Some(reading))),
            Err(status) => Some((Err(status), None)),
        }
    });
    Body::new(StreamBody::new(frames))
}

/// An open request body.
struct Messages<B> {
    body: B,
    /// What was received of the next messages.
    received: BytesMut,
    /// Counts `received`, and the message that was passed on last: its reader may not have decoded it.
    charge: Charge,
    traffic: Arc<Traffic>,
}

impl<B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin> Messages<B> {
    fn new(body: B, traffic: &Arc<Traffic>) -> Self {
        let (charge, traffic) = (Charge::unfinished(traffic), Arc::clone(traffic));
        Self { body, received: BytesMut::new(), charge, traffic }
    }

    /// The next message, as it was framed. `None`: the peer has ended the stream. There is no limit to the time before a
    /// message.
    async fn next(&mut self, statuses: Statuses) -> Result<Option<Bytes>, Status> {
        let Self { body, received, charge, traffic } = self;
        *charge = Charge::unfinished(traffic);
        charge.receive(received.len()).map_err(statuses)?;
        let mut deadline = None;
        loop {
            if let Some(length) = framed(received).map_err(statuses)? {
                return Ok(Some(received.split_to(length).freeze()));
            }
            if !received.is_empty() {
                deadline.get_or_insert_with(|| Box::pin(sleep(DEADLINE)));
            }
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = traffic.end.cancelled() => return Err(statuses(Refusal::Draining)),
                Some(()) = OptionFuture::from(deadline.as_mut()) => {
                    return Err(statuses(Refusal::Incomplete(DEADLINE)));
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    charge.receive(data.len()).map_err(statuses)?;
                    received.extend_from_slice(&data);
                }
                Some(Err(error)) => return Err(Status::from_error(error.into())),
                // The reader refuses a part of a message.
                None => return Ok((!received.is_empty()).then(|| received.split().freeze())),
            }
        }
    }
}

/// The length of the framed message that `received` begins with. `None`: it is not complete.
fn framed(received: &[u8]) -> Result<Option<usize>, Refusal> {
    let Some(([_compressed, length @ ..], rest)) = received.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    match usize::try_from(u32::from_be_bytes(*length)) {
        Ok(length) if length <= MESSAGE => Ok((length <= rest.len()).then_some(HEAD + length)),
        _ => Err(Refusal::Large(MESSAGE)),
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

#[cfg(test)]
mod tests;
