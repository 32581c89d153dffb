//! Rotations as a stream.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;
use futures_util::{StreamExt, stream::BoxStream};

use crate::credential::Credential;

/// The credentials of a source: the current one, then one for each rotation. Rotations in between two polls are skipped. It
/// never ends.
pub struct CredentialChanges(BoxStream<'static, Arc<Credential>>);

impl CredentialChanges {
    pub(super) fn new(credentials: impl Stream<Item = Arc<Credential>> + Send + 'static) -> Self {
        Self(credentials.boxed())
    }
}

impl Stream for CredentialChanges {
    type Item = Arc<Credential>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for CredentialChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialChanges").finish_non_exhaustive()
    }
}
