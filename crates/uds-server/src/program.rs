//! The program that the server serves.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request::Parts};
use tonic::{Status, body::Body};

use crate::{account::Refusal, identity::PeerIdentity, response_body::Loss};

/// Decides who may call, and answers.
pub trait Program: Send + Sync + 'static {
    /// The peer of one connection, with its rights for example.
    type Peer: Send + Sync + 'static;
    /// A method, as its metrics name it.
    type Method: Copy + Send + Sync + 'static;
    /// The span of one call.
    type Span: Send;

    /// A peer has connected. Returns also whether it gets a place. If not, all of its calls are refused, and its connection
    /// ends soon.
    fn meet(&self, identity: PeerIdentity) -> (Self::Peer, bool);

    /// Decides about a call, before its request is read.
    ///
    /// # Errors
    ///
    /// The answer to the call. A peer that was denied often is disconnected.
    fn admit(&self, peer: &Self::Peer, path: &str) -> Result<CallKind, Status>;

    /// Ends a call of the kind [`Watch`](CallKind::Watch) or [`Stream`](CallKind::Stream) when its peer loses the right
    /// to it. `None`: it needs none.
    fn loss(&self, peer: &Arc<Self::Peer>, path: &str) -> Option<Loss>;

    /// The method of a call, and its span, which begins.
    fn begin(&self, path: &str, headers: &HeaderMap) -> (Self::Method, Self::Span);

    /// The call within its span.
    fn within<F: Future + Send>(span: Self::Span, call: F) -> impl Future<Output = F::Output> + Send;

    /// The framed answer to a request, if it is known without a wait. `None`: [`call`](Self::call) decides, and finds in the
    /// extensions of `head` what this has put there.
    fn recall(&self, peer: &Self::Peer, head: &mut Parts, body: &Bytes) -> Option<Bytes>;

    /// Answers a request. Its extensions have the [`WatchSlots`](crate::WatchSlots) of the connection,
    /// and the [`Charge`](crate::Charge) of the call.
    fn call(
        &self,
        peer: &Arc<Self::Peer>,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// The status of a call that the server itself refuses or ends.
    fn status(why: Refusal) -> Status;

    /// An answer that [`recall`](Self::recall) did not make has these headers.
    fn answered(&self, peer: &Self::Peer, method: Self::Method, headers: &HeaderMap);

    /// The connection has its first answer, so what takes time delays no caller.
    fn settle(&self, peer: &Self::Peer);
}

/// What a call needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallKind {
    /// One message is the whole request. The service takes a slot itself if its answer is a watch.
    Call,
    /// The same, and the answer takes a slot of the watches.
    Watch,
    /// Messages in both directions. The answer takes a slot of the watches.
    Stream,
}
