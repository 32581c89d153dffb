//! The sources that are in use, so that equal references share one.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::handle::SharedSource;
use crate::reference::CredentialRef;

/// Counts the handles of each source: it ends, and leaves, with the last one.
#[derive(Default)]
pub(crate) struct Sources(Mutex<HashMap<Vec<u8>, Weak<SharedSource>>>);

/// The place of a source, which it leaves when it is dropped.
pub(super) struct Place {
    sources: Weak<Sources>,
    key: Vec<u8>,
}

impl Sources {
    /// The source of that reference, or the one that `start` makes.
    pub(super) fn get_or_start(
        self: &Arc<Self>,
        reference: &CredentialRef,
        start: impl FnOnce(Place) -> Arc<SharedSource>,
    ) -> Arc<SharedSource> {
        let key = reference.key();
        let mut sources = self.sources();
        sources.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let source = start(Place { sources: Arc::downgrade(self), key: key.clone() });
            sources.insert(key, Arc::downgrade(&source));
            source
        })
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Weak<SharedSource>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.sources().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(sources) = self.sources.upgrade() else { return };
        let mut sources = sources.sources();
        // Another source may have taken the place meanwhile.
        if sources.get(&self.key).is_some_and(|source| source.strong_count() == 0) {
            sources.remove(&self.key);
        }
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("in_use", &self.len()).finish_non_exhaustive()
    }
}
