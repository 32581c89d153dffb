//! A source that is restricted to one endpoint.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::credential::Credential;

/// Holds the newest credential of one endpoint. The endpoint is the one that this credential came with.
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
        Arc::ptr_eq(&last, credential) || credential.has_same_endpoint(&last)
    }

    /// `newest` if it is for this endpoint, else the last one that was.
    pub(crate) fn narrow(&self, newest: Option<Arc<Credential>>) -> Arc<Credential> {
        let Some(newest) = newest.filter(|newest| self.covers(newest)) else { return self.last.load_full() };
        if !Arc::ptr_eq(&self.last.load(), &newest) {
            self.last.store(Arc::clone(&newest));
        }
        newest
    }
}
