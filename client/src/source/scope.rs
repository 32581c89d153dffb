//! The credentials of one endpoint, of a source that may have moved on.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::Credential;

/// Holds the newest credential of its endpoint: which one that is, is that credential's to say.
#[derive(Debug)]
pub(crate) struct Scope {
    last: ArcSwap<Credential>,
}

impl Scope {
    pub(crate) fn of(credential: Arc<Credential>) -> Self {
        Self { last: ArcSwap::new(credential) }
    }

    pub(crate) fn covers(&self, credential: &Arc<Credential>) -> bool {
        let last = self.last.load();
        Arc::ptr_eq(&last, credential) || credential.is_for_endpoint_of(&last)
    }

    /// `newest` if it is for this endpoint, else what was the newest when the source left.
    pub(crate) fn narrow(&self, newest: Option<Arc<Credential>>) -> Arc<Credential> {
        let Some(newest) = newest.filter(|newest| self.covers(newest)) else { return self.last.load_full() };
        if !Arc::ptr_eq(&self.last.load(), &newest) {
            self.last.store(Arc::clone(&newest));
        }
        newest
    }
}
