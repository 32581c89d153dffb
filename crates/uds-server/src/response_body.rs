//! The body of an answer. It counts as unsent until the peer takes it, and ends when the broker drains.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::futures::OwnedNotified;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

use crate::{
    account::Refusal,
    traffic::{Call, Traffic, Unsent, WatchSlot},
};

/// Longest frame in bytes that h2 copies into its write buffer. Messages of up to `IN_PIECES` bytes are split into such
/// frames: one write for several frames saves more than the copies cost.
const PIECE: usize = 1023;
const IN_PIECES: usize = 8 * 1024;

/// Resolves when the peer has lost the right to a stream, with the status that ends it.
pub type Loss = Pin<Box<dyn Future<Output = Status> + Send>>;

/// What belongs to a stream that its service does not count as a watch.
#[derive(Default)]
pub(crate) struct Watching {
    /// `None`: the peer needs no right, or the service checks it.
    loss: Option<Loss>,
    _slot: Option<WatchSlot>,
}

impl Watching {
    /// `slot` is its place among the watches of the connection.
    pub(crate) fn new(slot: Option<WatchSlot>, loss: Option<Loss>) -> Self {
        Self { loss, _slot: slot }
    }
}

/// The body of an answer. A stream without a message to send when the broker drains ends with the status `DRAINING`,
/// even if the service keeps it open: an open stream would delay the drain.
pub(crate) struct ResponseBody {
    body: Body,
    /// The frame to send next. It counts as unsent before the peer takes it.
    ahead: Option<Frame<Unsent>>,
    room: Option<Pin<Box<OwnedNotified>>>,
    end: End,
    traffic: Arc<Traffic>,
    watching: Watching,
    _call: Call,
}

enum End {
    /// The whole message is in `ahead`; the trailers follow.
    Whole,
    /// The trailers, or all of the body, were sent.
    Reached,
    /// No future waits for the token yet: the body was always ready so far.
    Unwatched(CancellationToken),
    Watched(Pin<Box<WaitForCancellationFutureOwned>>),
}

impl ResponseBody {
    pub(crate) fn new(
        body: Body,
        traffic: &Arc<Traffic>,
        draining: CancellationToken,
        call: Call,
        watching: Watching,
    ) -> Self {
        let (traffic, end) = (Arc::clone(traffic), End::Unwatched(draining));
        Self { body, ahead: None, room: None, end, traffic, watching, _call: call }
    }

    /// An answer of one message, which is already framed.
    pub(crate) fn whole(frame: Bytes, traffic: &Arc<Traffic>, call: Call) -> Self {
        let ahead = Some(Frame::data(Unsent::new(frame, traffic)));
        let (body, traffic) = (Body::empty(), Arc::clone(traffic));
        let watching = Watching::default();
        Self { body, ahead, room: None, end: End::Whole, traffic, watching, _call: call }
    }

    /// Encodes the first message if it is ready and there is room for it. Never waits. Without room, the body is not
    /// polled.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.traffic.has_room()
            && let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.body).poll_frame(cx)
        {
            self.ahead = Some(self.count(frame));
        }
        Poll::Ready(())
    }

    fn count(&self, frame: Frame<Bytes>) -> Frame<Unsent> {
        frame.map_data(|bytes| Unsent::new(bytes, &self.traffic))
    }

    /// Ends the answer, and returns its last frame.
    fn last(&mut self, status: &Status) -> Frame<Unsent> {
        self.end = End::Reached;
        Frame::trailers(error_trailers(status))
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
        loop {
            if self.traffic.has_room() {
                if self.room.take().is_some() {
                    self.traffic.pass_on();
                }
                return Poll::Ready(());
            }
            let room = self.room.get_or_insert_with(|| Box::pin(self.traffic.room()));
            if room.as_mut().poll(cx).is_ready() {
                // Another call took the room first.
                *room = Box::pin(self.traffic.room());
            } else if !self.traffic.has_room() {
                // Room may have been made before the future was registered, so this checks again.
                return Poll::Pending;
            }
        }
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
        match this.end {
            End::Reached => return Poll::Ready(None),
            End::Whole => {
                this.end = End::Reached;
                return Poll::Ready(Some(Ok(Frame::trailers(ok_trailers()))));
            }
            End::Unwatched(_) | End::Watched(_) => {}
        }
        ready!(this.poll_room(cx));
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        // After the body, because its frame, or its end, may come from a look at rights that were lost just before.
        if let Some(loss) = &mut this.watching.loss
            && let Poll::Ready(status) = loss.as_mut().poll(cx)
        {
            return Poll::Ready(Some(Ok(this.last(&status))));
        }
        if let Poll::Ready(frame) = frame {
            return Poll::Ready(frame.map(|frame| frame.map(|frame| this.first_piece(this.count(frame)))));
        }
        if let End::Unwatched(draining) = &this.end {
            this.end = End::Watched(Box::pin(draining.clone().cancelled_owned()));
        }
        if let End::Watched(draining) = &mut this.end {
            ready!(draining.as_mut().poll(cx));
        }
        let status = this.traffic.status(Refusal::Draining);
        Poll::Ready(Some(Ok(this.last(&status))))
    }

    fn is_end_stream(&self) -> bool {
        match self.end {
            End::Whole => false,
            End::Reached => self.ahead.is_none(),
            End::Unwatched(_) | End::Watched(_) => self.ahead.is_none() && self.body.is_end_stream(),
        }
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
