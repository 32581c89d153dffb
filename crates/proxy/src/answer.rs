//! The body of an answer: streamed, counted, and ended early where that loses nothing.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use credbroker_client::tls::{ResponseBody, is_replaced};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    boundary::Boundary,
    exchange::{Exchange, Upstream},
    record::Pending,
    target::UsedTarget,
};

/// client-go takes a shorter watch without an event for a failure, and lists again.
const SHORTEST: Duration = Duration::from_secs(1);

/// Why an answer was not sent to its end.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub struct AnswerBody(Content);

enum Content {
    /// Of the proxy itself.
    Own(Option<Bytes>),
    Forwarded(Box<Forwarded>),
}

struct Forwarded {
    /// Closed when the request is cut.
    inner: Upstream,
    /// Of a watch.
    boundary: Option<Boundary>,
    asked: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// A watch without an event does not end before.
    young: Option<Pin<Box<Sleep>>>,
    /// A watch whose connection has ended.
    is_lost: bool,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    is_over: bool,
    /// Writes the last record when the body is dropped.
    pending: Pending,
    _exchange: Exchange,
    /// Its connections end with the last request.
    _used: Arc<UsedTarget>,
}

/// The answer was cut off: its caller may no longer have it, or the proxy ends.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the proxy ends this answer")]
struct Cut;

impl AnswerBody {
    /// Passes on what comes. `watch`: the headers of the answer, if it is that of a watch.
    pub(crate) fn forwarded(
        body: ResponseBody,
        watch: Option<&HeaderMap>,
        exchange: Exchange,
        used: Arc<UsedTarget>,
        pending: Pending,
    ) -> Self {
        let ending = &exchange.parties.ending;
        let inner = ending.upstream.clone();
        inner.open(body);
        let boundary = watch.map(Boundary::of);
        let asked = boundary.is_some().then(|| Box::pin(ending.asked.clone().cancelled_owned()));
        let young = boundary.is_some().then(|| Box::pin(sleep(SHORTEST)));
        let cut = Box::pin(ending.cut.clone().cancelled_owned());
        let forwarded = Forwarded {
            inner,
            boundary,
            asked,
            young,
            is_lost: false,
            cut,
            is_over: false,
            pending,
            _exchange: exchange,
            _used: used,
        };
        Self(Content::Forwarded(Box::new(forwarded)))
    }

    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self(Content::Own(None))
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self(Content::Own(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl Forwarded {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let is_between = self.boundary.as_ref().is_some_and(Boundary::is_between);
        if self.cut.as_mut().poll(cx).is_ready() {
            self.is_over = true;
            return Poll::Ready((!is_between).then(|| Err(Cut.into())));
        }
        // Of another encoding, only a pause is between two events.
        let is_certain = self.boundary.as_ref().is_some_and(|boundary| *boundary != Boundary::Pauses);
        if is_between && (is_certain || self.is_lost) && self.ends(cx) {
            self.is_over = true;
            return Poll::Ready(None);
        }
        if self.is_lost {
            return Poll::Pending;
        }
        let frame = self.inner.with(|inner| Pin::new(inner).poll_frame(cx));
        // It was cut between these two looks.
        let Some(frame) = frame else { return self.poll(cx) };
        if frame.is_pending() && !is_certain && self.ends(cx) {
            self.is_over = true;
            return Poll::Ready(None);
        }
        Poll::Ready(match std::task::ready!(frame) {
            Some(Ok(frame)) => {
                // Trailers are headers that nothing has checked, and API servers have none.
                let Ok(data) = frame.into_data() else { return self.poll(cx) };
                self.pending.sent(data.len());
                self.boundary.iter_mut().for_each(|boundary| boundary.pass(&data));
                self.young = None;
                Some(Ok(Frame::data(data)))
            }
            // The client watches again from the last event, without a list.
            Some(Err(error)) if is_between && is_replaced(&*error) => {
                self.is_lost = true;
                return self.poll(cx);
            }
            Some(Err(error)) => {
                self.is_over = true;
                self.pending.cut();
                Some(Err(error))
            }
            None => {
                self.is_over = true;
                None
            }
        })
    }

    /// Whether a watch that is between two events ends there.
    fn ends(&mut self, cx: &mut Context<'_>) -> bool {
        let asked = self.asked.as_mut().map(|asked| asked.as_mut().poll(cx));
        let may_end = self.is_lost || asked.is_some_and(|asked| asked.is_ready());
        may_end && self.young.as_mut().is_none_or(|young| young.as_mut().poll(cx).is_ready())
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        // What waits to cut it has it too.
        self.inner.close();
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Content::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Forwarded(forwarded) => forwarded.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Own(bytes) => bytes.is_none(),
            Content::Forwarded(forwarded) => {
                forwarded.is_over
                    || !forwarded.is_lost
                        && forwarded.inner.with(|inner| inner.is_end_stream()).unwrap_or_default()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            // A watch may end early.
            Content::Forwarded(forwarded) if forwarded.boundary.is_some() => SizeHint::default(),
            Content::Forwarded(forwarded) => {
                forwarded.inner.with(|inner| inner.size_hint()).unwrap_or_default()
            }
        }
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").finish_non_exhaustive()
    }
}
