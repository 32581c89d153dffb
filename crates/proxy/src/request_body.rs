//! The body of a request, which streams, and whose beginning is kept so that it can be sent twice.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};

/// Bytes of one request that are kept: more than nearly all objects have.
const KEPT: usize = 256 * 1024;
/// Bytes that all requests keep together.
const KEPT_BY_ALL: usize = 64 * 1024 * 1024;

/// What the bodies of all requests keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

/// A handle of a request body. The one that was begun last goes on: the others fail.
pub(crate) struct RequestBody {
    shared: Arc<Shared>,
    /// When it was begun, if it was.
    turn: Option<usize>,
    /// Bytes that it has passed on, of those that are kept.
    next: usize,
    hint: SizeHint,
    is_empty: bool,
}

struct Shared(Mutex<State>);

/// The body as it comes from the client.
type Source = UnsyncBoxBody<Bytes, hyper::Error>;

struct State {
    incoming: Source,
    /// A copy: a piece would keep the whole buffer that it was read into, of which a client can fill one byte. `None`: nothing is kept
    /// from now on.
    kept: Option<Vec<u8>>,
    budget: Budget,
    /// Handles that were begun.
    turns: usize,
    /// Waits for the client.
    reader: Option<Waker>,
    received: u64,
    limit: Option<u64>,
    is_too_large: bool,
    has_failed: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// The client sends.
    Open,
    /// The client has sent all of it.
    Complete,
    /// The request has ended before.
    Ended,
}

/// What is known of a body while, and after, it is sent.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Shared>);

impl RequestBody {
    /// The body of a request, of which at most `limit` bytes are accepted.
    pub(crate) fn new(
        incoming: impl Body<Data = Bytes, Error = hyper::Error> + Send + 'static,
        limit: Option<u64>,
        budget: &Budget,
    ) -> Self {
        let (hint, is_empty) = (incoming.size_hint(), incoming.is_end_stream());
        let incoming = incoming.boxed_unsync();
        let state = State {
            incoming,
            kept: Some(Vec::new()),
            budget: budget.clone(),
            turns: 0,
            reader: None,
            received: 0,
            limit,
            is_too_large: false,
            has_failed: false,
            stage: if is_empty { Stage::Complete } else { Stage::Open },
        };
        Self { shared: Arc::new(Shared(Mutex::new(state))), turn: None, next: 0, hint, is_empty }
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.shared))
    }
}

impl credbroker_kube::RequestBody for RequestBody {
    fn again(&self) -> Option<Self> {
        // This handle may have been begun. The other one begins with what is kept.
        let hint = self.hint;
        self.shared.state().kept.is_some().then(|| Self {
            shared: Arc::clone(&self.shared),
            turn: None,
            next: 0,
            hint,
            is_empty: self.is_empty,
        })
    }

    fn is_complete(&self) -> bool {
        let state = self.shared.state();
        state.kept.is_some() && !state.is_too_large && !state.has_failed
    }
}

impl Progress {
    /// Bytes of the body that were received.
    pub(crate) fn received(&self) -> u64 {
        self.0.state().received
    }

    /// Whether the body is longer than its limit, so that it was not sent.
    pub(crate) fn is_too_large(&self) -> bool {
        self.0.state().is_too_large
    }

    /// Whether the client did not send all of it.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.state().has_failed
    }

    /// The request has ended: what is left of the body is not sent.
    pub(crate) fn end(&self) {
        let mut state = self.0.state();
        if state.stage == Stage::Open {
            state.stage = Stage::Ended;
            state.wake();
        }
    }

    /// Whether the client has sent all of it.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.state().stage == Stage::Complete
    }

    /// The answer has come, so the body is not sent again.
    pub(crate) fn forget(&self) {
        self.0.state().forget();
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("received", &self.received()).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self) {
        let bytes = self.kept.take().map_or(0, |kept| kept.len());
        self.budget.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Keeps a piece, or nothing from now on.
    fn keep(&mut self, piece: &Bytes) {
        let Some(kept) = &mut self.kept else { return };
        let all = self.budget.0.fetch_add(piece.len(), Ordering::Relaxed) + piece.len();
        if kept.len() + piece.len() > KEPT || all > KEPT_BY_ALL {
            self.budget.0.fetch_sub(piece.len(), Ordering::Relaxed);
            self.forget();
        } else {
            kept.extend_from_slice(piece);
        }
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn fail(&mut self, message: &'static str) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.forget();
        Poll::Ready(Some(Err(io::Error::other(message))))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let turn = if let Some(turn) = self.turn {
            turn
        } else {
            // Another handle has read what this one no longer finds.
            if state.turns > 0 && state.kept.is_none() {
                return Poll::Ready(Some(Err(io::Error::other("the beginning of the body was not kept"))));
            }
            state.turns += 1;
            // It sees that its turn is over, and ends its connection.
            state.wake();
            self.turn = Some(state.turns);
            state.turns
        };
        if turn < state.turns {
            return Poll::Ready(Some(Err(io::Error::other("the request was sent again"))));
        }
        if state.stage == Stage::Ended {
            return state.fail("the request has ended");
        }
        let kept = state.kept.as_ref().and_then(|kept| kept.get(self.next..)).unwrap_or_default();
        if !kept.is_empty() {
            self.next += kept.len();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(kept)))));
        }
        loop {
            if state.stage == Stage::Complete {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = Pin::new(&mut state.incoming).poll_frame(cx) else {
                state.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let Some(frame) = frame else {
                state.stage = Stage::Complete;
                return Poll::Ready(None);
            };
            let Ok(frame) = frame else {
                state.has_failed = true;
                return state.fail("the client did not send the whole body");
            };
            // Requests to API servers have no trailers.
            let Ok(piece) = frame.into_data() else { continue };
            state.received += piece.len() as u64;
            if state.limit.is_some_and(|limit| state.received > limit) {
                state.is_too_large = true;
                return state.fail("the body is too large");
            }
            state.keep(&piece);
            self.next += piece.len();
            // hyper does not ask for the end of a body whose length is known.
            if state.incoming.is_end_stream() {
                state.stage = Stage::Complete;
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty
    }

    fn size_hint(&self) -> SizeHint {
        if self.next == 0 { self.hint } else { SizeHint::default() }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("hint", &self.hint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
