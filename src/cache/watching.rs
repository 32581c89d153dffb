//! Following one credential.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::sleep};

use super::{CredentialCache, Failed, entry::Entry, state::State};
use crate::{
    clock::Now,
    credential::{Generation, Issued},
    exec::PluginRunner,
};

/// How long a watch sleeps at most: timers only wake, the clocks decide.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// An open watch. While there is one, its key is refreshed and not forgotten.
#[derive(Debug)]
pub struct Watch<R> {
    cache: CredentialCache<R>,
    entry: Arc<Entry>,
    cell: watch::Receiver<State>,
    /// What was returned last.
    seen: Option<(Generation, SystemTime)>,
}

impl<R> Drop for Watch<R> {
    fn drop(&mut self) {
        self.entry.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: PluginRunner> Watch<R> {
    pub(super) fn new(cache: CredentialCache<R>, entry: Arc<Entry>) -> Self {
        entry.watchers.fetch_add(1, Ordering::Relaxed);
        let cell = entry.cell.subscribe();
        Self { cache, entry, cell, seen: None }
    }

    /// The credential, once it is another than the one that was returned last, or lives longer: the newest only, however
    /// long nobody asked. `None` at least once a minute without news: time to see whether the plugin is still the same.
    ///
    /// # Errors
    ///
    /// The credential expired and there is no other: [`Failed`] says why.
    pub async fn next(&mut self) -> Result<Option<Arc<Issued>>, Failed> {
        loop {
            let now = self.cache.now();
            let held =
                self.cell.borrow_and_update().current.as_ref().map(|current| Arc::clone(&current.issued));
            let issued = match held.filter(|issued| issued.is_valid_at(now)) {
                Some(issued) => issued,
                None => self.cache.settle(&self.entry, None).await?,
            };
            let found = (issued.generation.clone(), issued.expires_at);
            if self.seen.as_ref() != Some(&found) {
                self.seen = Some(found);
                return Ok(Some(issued));
            }
            let quiet = left(&issued, now).min(LOOK_EVERY);
            tokio::select! {
                _ = self.cell.changed() => {} // the sender lives as long as the entry
                () = sleep(quiet) => if quiet == LOOK_EVERY { return Ok(None) },
            }
        }
    }

    /// What was returned last counts as returned by `other` too, whose key took the place of this one's.
    pub fn succeeds(&mut self, other: &Self) {
        self.seen.clone_from(&other.seen);
    }
}

/// How long `issued` is still valid, by whichever clock ends it first; and a moment, so that it is over then.
fn left(issued: &Issued, now: Now) -> Duration {
    let wall = issued.expires_at.duration_since(now.wall).unwrap_or_default();
    let boot = issued.fetched.boot.saturating_add(issued.lifetime).saturating_sub(now.boot);
    wall.min(boot).saturating_add(Duration::from_millis(1))
}
