//! A program for tests.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request::Parts};
use tonic::{Status, body::Body};

use crate::{CallKind, Loss, PeerIdentity, Program, Refusal};

/// Serves every peer, and has no method.
pub(crate) struct Nothing;

impl Program for Nothing {
    type Peer = ();
    type Method = ();
    type Span = ();

    fn meet(&self, _: PeerIdentity) -> ((), bool) {
        ((), true)
    }

    fn admit(&self, (): &(), _: &str) -> Result<CallKind, Status> {
        Ok(CallKind::Call)
    }

    fn loss(&self, _: &Arc<()>, _: &str) -> Option<Loss> {
        None
    }

    fn begin(&self, _: &str, _: &HeaderMap) -> ((), ()) {
        ((), ())
    }

    fn within<F: Future + Send>((): (), call: F) -> impl Future<Output = F::Output> + Send {
        call
    }

    fn recall(&self, (): &(), _: &mut Parts, _: &Bytes) -> Option<Bytes> {
        None
    }

    async fn call(&self, _: &Arc<()>, _: Request<Body>) -> Response<Body> {
        Status::unimplemented("nothing").into_http()
    }

    fn status(why: Refusal) -> Status {
        Status::unavailable(format!("{why:?}"))
    }

    fn answered(&self, (): &(), (): (), _: &HeaderMap) {}

    fn settle(&self, (): &()) {}
}
