//! Which requests can be sent twice.

use http_body::Body;

/// Copies the body of a request that may be sent once more.
///
/// ```
/// use credbroker_client::{Repeat, WithoutBody};
/// use http_body_util::Full;
///
/// assert!(WithoutBody.copy(&Full::<bytes::Bytes>::default()).is_some());
/// assert!(WithoutBody.copy(&Full::<bytes::Bytes>::from("text")).is_none());
/// ```
pub trait Repeat<B> {
    /// A body that says the same, or `None` if there cannot be one.
    fn copy(&self, body: &B) -> Option<B>;
}

/// Requests without a body are repeated.
///
/// ```no_run
/// # fn example(source: credbroker_client::CredentialSource) {
/// let layer = credbroker_client::Authenticate::new(source).repeat(credbroker_client::WithoutBody);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WithoutBody;

/// Nothing is repeated.
///
/// ```no_run
/// # fn example(source: credbroker_client::CredentialSource) {
/// let layer = credbroker_client::Authenticate::new(source).repeat(credbroker_client::Never);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Never;

impl<B: Body + Default> Repeat<B> for WithoutBody {
    fn copy(&self, body: &B) -> Option<B> {
        body.is_end_stream().then(B::default)
    }
}

impl<B> Repeat<B> for Never {
    fn copy(&self, _: &B) -> Option<B> {
        None
    }
}

impl<B, F: Fn(&B) -> Option<B>> Repeat<B> for F {
    fn copy(&self, body: &B) -> Option<B> {
        self(body)
    }
}
