//! Watches of one credential.

use std::{
    future::ready,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::sync::watch;

use super::{
    Caller, CredentialCache, Failed, Request,
    entry::{Interest, KeyEntry},
    get::FirstStep,
    state::KeyState,
};
use credbroker_credential::{Generation, Issued};
use credbroker_plugin::Retirement;
use credbroker_runner::PluginRunner;

/// An open watch. Its key is refreshed, and not forgotten, while it is open.
#[derive(Debug)]
pub struct CredentialWatch<R> {
    cache: CredentialCache<R>,
    interest: Interest,
    cell: watch::Receiver<KeyState>,
    request: Request,
    /// The generation and expiry that were returned last.
    seen: Option<(Generation, SystemTime)>,
}

impl<R> Drop for CredentialWatch<R> {
    fn drop(&mut self) {
        self.entry().watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R> CredentialWatch<R> {
    pub(super) fn new(cache: CredentialCache<R>, interest: Interest, caller: Caller) -> Self {
        interest.0.watchers.fetch_add(1, Ordering::Relaxed);
        let cell = interest.0.cell.subscribe();
        // A watch has no deadline, and the server limits the number of watches.
        let request = Request { caller, deadline: Some(Duration::MAX), ..Request::default() };
        Self { cache, interest, cell, request, seen: None }
    }

    fn entry(&self) -> &Arc<KeyEntry> {
        &self.interest.0
    }

    /// Why its provider is no longer in force; `None`: it is.
    pub fn retirement(&self) -> Option<Retirement> {
        self.entry().spec.provider.standing.retirement()
    }

    /// Continues where `other` ended: the credential that it returned last is not returned again.
    pub fn succeeds(&mut self, other: &Self) {
        self.seen.clone_from(&other.seen);
    }
}

impl<R: PluginRunner> CredentialWatch<R> {
    /// Waits for a credential whose generation or expiry differs from the one that was returned last. Generations that
    /// came and went meanwhile are skipped.
    ///
    /// # Errors
    ///
    /// The credential expired and could not be replaced: [`Failed`] has the cause.
    pub async fn next(&mut self) -> Result<Arc<Issued>, Failed> {
        loop {
            let now = self.cache.now();
            let held = self.cell.borrow_and_update().valid(now).map(|current| Arc::clone(&current.issued));
            let is_held = held.is_some();
            let issued = if let Some(issued) = held {
                issued
            } else {
                let first = ready(FirstStep::Decide);
                let answer = self.cache.get_or_run(self.entry(), &self.request, first).await;
                self.cache.count(self.entry(), answer.is_ok(), now);
                answer?
            };
            let found = (issued.generation.clone(), issued.expires_at);
            if self.seen.as_ref() != Some(&found) {
                self.seen = Some(found);
                if is_held {
                    self.cache.count_served(self.entry());
                }
                return Ok(issued);
            }
            // The maintenance wakes the watches of an expired credential, so that they need no timers. The entry keeps the
            // sender alive.
            drop(self.cell.changed().await);
        }
    }
}
