//! The body of an answer. It counts as unsent until the peer takes it, and ends when the broker drains.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{Status, body::Body};

use crate::{
    account::Refusal,
    request_body::Statuses,
    traffic::{Call, Unsent, WatchSlot},
};

/// Longest frame in bytes that h2 copies into its write buffer. Messages of up to `IN_PIECES` bytes are split into such
/// frames: one write for several frames saves more than the copies cost.
const PIECE: usize = 1023;
const IN_PIECES: usize = 8 * 1024;

/// Resolves when the peer has lost the right to a stream, with the status that ends it.
pub type Loss = Pin<Box<dyn Future<Output = Status> + Send>>;

/// The loss of the right to a stream, and its place among the watches, unless its service counts and checks it.
pub(crate) type Watching = (Option<Loss>, Option<WatchSlot>);

/// The body of an answer. A stream without a message to send when the connection has to end, as at a drain, ends with the
/// status `DRAINING`, even if the service keeps it open: an open stream would delay the drain.
pub(crate) struct ResponseBody {
    body: Body,
    /// The frame to send next. It counts as unsent before the peer takes it.
    ahead: Option<Frame<Unsent>>,
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    state: State,
    /// `None`: the body was always ready so far.
    ending: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    call: Call,
    watching: Watching,
    statuses: Statuses,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The whole message is in `ahead`; the trailers follow.
    Whole,
    /// The body has more.
    Open,
    /// The trailers, or all of the body, were sent.
    Ended,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, call: Call, watching: Watching, statuses: Statuses) -> Self {
        Self { body, ahead: None, room: None, state: State::Open, ending: None, call, watching, statuses }
    }

    pub(crate) fn whole(frame: Bytes, call: Call, statuses: Statuses) -> Self {
        let ahead = Some(Frame::data(Unsent::new(frame, &call.traffic)));
        Self { ahead, state: State::Whole, ..Self::new(Body::empty(), call, Watching::default(), statuses) }
    }

    /// Encodes the first message if it is ready and there is room for it. Never waits. Without room, the body is not
    /// polled.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.call.traffic.has_room()
            && let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.body).poll_frame(cx)
        {
            self.ahead = Some(self.count(frame));
        }
        Poll::Ready(())
    }

    fn count(&self, frame: Frame<Bytes>) -> Frame<Unsent> {
        frame.map_data(|bytes| Unsent::new(bytes, &self.call.traffic))
    }

    fn last(&mut self, trailers: HeaderMap) -> Frame<Unsent> {
        self.state = State::Ended;
        Frame::trailers(trailers)
    }

    /// Returns the part of `frame` to send now, and keeps the rest in `ahead`.
    fn first_piece(&mut self, frame: Frame<Unsent>) -> Frame<Unsent> {
        match frame.into_data() {
            Ok(mut data) if (PIECE + 1..=IN_PIECES).contains(&data.remaining()) => {
                let piece = data.split_to(PIECE);
                self.ahead = Some(Frame::data(data));
                Frame::data(piece)
            }
            Ok(data) => Frame::data(data),
            Err(frame) => frame,
        }
    }

    /// Waits for room. Until then, no further message is encoded.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.room.is_some() || !self.call.traffic.has_room() {
            let traffic = &self.call.traffic;
            let room = self.room.get_or_insert_with(|| Box::pin(Arc::clone(traffic).room()));
            ready!(room.as_mut().poll(cx));
            self.room = None;
        }
        Poll::Ready(())
    }
}

impl HttpBody for ResponseBody {
    type Data = Unsent;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Unsent>, Status>>> {
        let this = self.get_mut();
        if let Some(frame) = this.ahead.take() {
            return Poll::Ready(Some(Ok(this.first_piece(frame))));
        }
        match this.state {
            State::Ended => return Poll::Ready(None),
            State::Whole => return Poll::Ready(Some(Ok(this.last(ok_trailers())))),
            State::Open => {}
        }
        ready!(this.poll_room(cx));
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        // After the body, because its frame, or its end, may come from a look at rights that were lost just before.
        if let (Some(loss), _) = &mut this.watching
            && let Poll::Ready(status) = loss.as_mut().poll(cx)
        {
            return Poll::Ready(Some(Ok(this.last(error_trailers(&status)))));
        }
        if let Poll::Ready(frame) = frame {
            return Poll::Ready(frame.map(|frame| frame.map(|frame| this.first_piece(this.count(frame)))));
        }
        let end = &this.call.traffic.end;
        let ending = this.ending.get_or_insert_with(|| Box::pin(end.clone().cancelled_owned()));
        ready!(ending.as_mut().poll(cx));
        let status = (this.statuses)(Refusal::Draining);
        Poll::Ready(Some(Ok(this.last(error_trailers(&status)))))
    }

    fn is_end_stream(&self) -> bool {
        let is_over = self.state == State::Ended || self.state == State::Open && self.body.is_end_stream();
        is_over && self.ahead.is_none()
    }
}

/// Trailers of an answer that succeeded.
pub fn ok_trailers() -> HeaderMap {
    let ok = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    HeaderMap::from_iter([ok])
}

/// Trailers of an answer that failed.
pub fn error_trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // A message of the program fits a header. Without a header, the stream would still end.
    let _complete = status.add_header(&mut trailers);
    trailers
}

#[cfg(test)]
mod tests;
