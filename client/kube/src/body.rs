//! Bodies of requests that may be sent twice.

use std::error::Error;

use bytes::Bytes;
use credbroker_client::Repeat;
use http_body::Body as HttpBody;
use kube::client::Body;

/// The body of a request.
pub trait RequestBody:
    HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
    /// Another body with the same content, made before anything is sent. `None`: there cannot be one.
    fn again(&self) -> Option<Self>
    where
        Self: Sized;

    /// Whether this body, from [`Self::again`], still has the whole content.
    fn is_complete(&self) -> bool {
        true
    }
}

impl RequestBody for Body {
    fn again(&self) -> Option<Self> {
        self.is_end_stream().then(Self::empty)
    }
}

/// Repeats requests as their bodies allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeatable;

impl<B: RequestBody> Repeat<B> for Repeatable {
    fn copy(&self, body: &B) -> Option<B> {
        body.again()
    }

    fn is_complete(copy: &B) -> bool {
        copy.is_complete()
    }
}
