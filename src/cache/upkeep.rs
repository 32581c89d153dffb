//! The periodic look at every entry: refreshes what is due and used, forgets what is idle.

use std::{sync::Arc, time::Duration};

use tracing::debug;

use super::{
    CredentialCache, Selector,
    entries::place,
    entry::Entry,
    policy::{Care, decide},
};
use crate::{
    clock::Now,
    exec::{PluginRunner, Urgency},
};

/// How often entries are looked at. The clocks decide about validity at each request; this bounds how late a refresh
/// starts, after a step of the clock and a suspend too.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Entries that are looked at without giving others a turn.
const AT_A_TIME: usize = 256;

impl<R: PluginRunner> CredentialCache<R> {
    /// Looks at every entry once a second while there are any: starts the refreshes that are due, moves those up that
    /// are urgent, and forgets what is idle. Ends when the broker drains.
    pub async fn keep_fresh(&self) {
        loop {
            let empty = self.is_empty();
            let wake = async {
                if empty {
                    self.inner.occupied.notified().await;
                } else {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            };
            tokio::select! {
                () = self.inner.parts.draining.cancelled() => return,
                () = wake => self.look_after_all().await,
            }
        }
    }

    async fn look_after_all(&self) {
        let mut last = None;
        loop {
            let entries = self.lock().after(Selector::All, last.as_ref(), AT_A_TIME);
            let Some(end) = entries.last() else { return };
            last = Some(place(&end.spec));
            let now = self.now();
            for entry in &entries {
                self.look_after(entry, now);
            }
            tokio::task::yield_now().await;
        }
    }

    fn look_after(&self, entry: &Arc<Entry>, now: Now) {
        if entry.is_watched() && entry.has_expired(now) {
            entry.cell.send_modify(|_expired| {}); // watches decide what that means
        }
        match entry.care(now) {
            Care::Keep => {}
            Care::Refresh { urgent } => {
                let file = entry.spec.file_version();
                let look = entry.look(background(urgent), |state| decide(state, true, file, now));
                self.start(entry, &look);
            }
            Care::Queued { urgent, abandon } => {
                let flight = entry.cell.borrow().flight.clone();
                match flight.filter(|flight| flight.is_background()) {
                    Some(flight) if abandon => flight.given_up.cancel(),
                    Some(flight) => flight.set_floor(background(urgent)),
                    None => {}
                }
            }
            Care::Drop => {
                let mut entries = self.lock();
                // Looked at once more: a caller that enters meanwhile holds the entry from under this lock.
                if entry.care(now) == Care::Drop {
                    entries.remove(entry);
                    debug!(provider = %entry.spec.provider.name, key = %entry.spec.key, "idle credential forgotten");
                }
            }
        }
    }
}

fn background(urgent: bool) -> Urgency {
    if urgent { Urgency::Urgent } else { Urgency::Background }
}
