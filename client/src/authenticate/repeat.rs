//! Which requests can be sent twice.

use http_body::Body;

/// Copies the body of a request that may be sent once more. Implemented for closures.
pub trait Repeat<B> {
    /// A copy of the body. `None`: there cannot be one.
    fn copy(&self, body: &B) -> Option<B>;

    /// Whether the copy has everything of the body, of which a part was sent by now. For bodies that are not in memory.
    #[doc(hidden)]
    fn is_complete(_copy: &B) -> bool
    where
        Self: Sized,
    {
        true
    }
}

/// Repeats requests without a body.
#[derive(Clone, Copy, Debug)]
pub struct WithoutBody;

impl<B: Body + Default> Repeat<B> for WithoutBody {
    fn copy(&self, body: &B) -> Option<B> {
        body.is_end_stream().then(B::default)
    }
}

impl<B, F: Fn(&B) -> Option<B>> Repeat<B> for F {
    fn copy(&self, body: &B) -> Option<B> {
        self(body)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    #[test]
    fn a_request_without_a_body_is_repeated_and_one_with_a_body_is_not() {
        let (empty, full) = (Full::<Bytes>::default(), Full::<Bytes>::from("text"));
        assert!(WithoutBody.copy(&empty).is_some() && WithoutBody.copy(&full).is_none());
    }
}
