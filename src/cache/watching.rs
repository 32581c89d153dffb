//! Following one credential.

use std::{
    future::ready,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::sync::watch;

use super::{
    Caller, CredentialCache, Failed, First, Request,
    entry::{Entry, Interest},
    state::State,
};
use crate::{
    credential::{Generation, Issued},
    exec::PluginRunner,
};

/// An open watch. While there is one, its key is refreshed and not forgotten.
#[derive(Debug)]
pub struct Watch<R> {
    cache: CredentialCache<R>,
    interest: Interest,
    cell: watch::Receiver<State>,
    request: Request,
    /// What was returned last.
    seen: Option<(Generation, SystemTime)>,
}

impl<R> Drop for Watch<R> {
    fn drop(&mut self) {
        self.entry().watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R> Watch<R> {
    pub(super) fn new(cache: CredentialCache<R>, interest: Interest, caller: Caller) -> Self {
        interest.0.watchers.fetch_add(1, Ordering::Relaxed);
        let cell = interest.0.cell.subscribe();
        // A stream has no deadline, and its number is limited where it is opened.
        let request = Request { caller, deadline: Some(Duration::MAX), ..Request::default() };
        Self { cache, interest, cell, request, seen: None }
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.interest.0
    }

    /// What was returned last counts as returned by `other` too, whose key took the place of this one's.
    pub fn succeeds(&mut self, other: &Self) {
        self.seen.clone_from(&other.seen);
    }
}

impl<R: PluginRunner> Watch<R> {
    /// The credential, once it is another than the one that was returned last, or its end moved: the newest only,
    /// however late it is asked for.
    ///
    /// # Errors
    ///
    /// The credential expired and there is no other: [`Failed`] says why.
    pub async fn next(&mut self) -> Result<Arc<Issued>, Failed> {
        loop {
            let now = self.cache.now();
            let held = self.cell.borrow_and_update().valid(now).map(|current| Arc::clone(&current.issued));
            let issued = match held {
                Some(issued) => issued,
                None => self.cache.settle(self.entry(), &self.request, ready(First::Decide)).await?,
            };
            let found = (issued.generation.clone(), issued.expires_at);
            if self.seen.as_ref() != Some(&found) {
                self.seen = Some(found);
                return Ok(issued);
            }
            // The periodic look wakes watches of what has expired: thousands of them need no timers. The sender lives as
            // long as the entry.
            drop(self.cell.changed().await);
        }
    }
}
