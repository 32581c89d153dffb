//! The periodic maintenance: refreshes the credentials that are due and used, and forgets idle keys.

use std::{sync::Arc, time::Duration};

use tracing::debug;

use super::{
    CredentialCache,
    attention::Asker,
    entries::position,
    entry::KeyEntry,
    policy::{NextAction, decide},
};
use credbroker_observe::clock::{Beat, Now};
use credbroker_runner::PluginRunner;

/// How often the maintenance runs. Validity is checked at each request; this bounds how late a refresh starts, also after
/// a step of the clock and a suspend.
const PERIOD: Duration = Duration::from_secs(1);
/// Entries that are handled before other tasks run.
const AT_A_TIME: usize = 256;

impl<R: PluginRunner> CredentialCache<R> {
    /// Handles every entry once a second while there are any, until the broker drains.
    pub(super) async fn maintain(&self, beat: Beat) {
        loop {
            let is_empty = self.is_empty();
            let wake = async {
                if is_empty {
                    self.inner.occupied.notified().await;
                } else {
                    beat.next(PERIOD).await;
                }
            };
            tokio::select! {
                () = self.inner.parts.draining.cancelled() => return,
                () = wake => self.maintain_all().await,
            }
        }
    }

    async fn maintain_all(&self) {
        let mut last = None;
        loop {
            let entries = self.lock().after(None, last.as_ref(), AT_A_TIME);
            let Some(end) = entries.last() else { return };
            last = Some(position(&end.spec));
            let now = self.now();
            for entry in &entries {
                self.maintain_one(entry, now);
            }
            tokio::task::yield_now().await;
        }
    }

    fn maintain_one(&self, entry: &Arc<KeyEntry>, now: Now) {
        if entry.is_watched() && entry.has_expired(now) {
            entry.cell.send_modify(|_expired| {}); // wakes the watches
        }
        match entry.next_action(now) {
            NextAction::Keep => {}
            NextAction::Refresh(urgency) => {
                let file = entry.spec.file_version();
                self.try_claim(entry, urgency, None, |state| decide(state, Asker::Broker, file, now));
            }
            NextAction::Adjust { urgency, abandon } => {
                let flight = entry.cell.borrow().flight.clone();
                match flight.filter(|flight| flight.is_background()) {
                    Some(flight) if abandon => flight.abandoned.cancel(),
                    Some(flight) => flight.set_floor(urgency),
                    None => {}
                }
            }
            NextAction::Forget => {
                let mut entries = self.lock();
                // Checked again under the lock: a caller may have entered meanwhile.
                if entry.next_action(now) == NextAction::Forget {
                    entries.remove(entry);
                    self.changed();
                    debug!(provider = %entry.spec.provider.name, key = %entry.spec.key, "idle credential forgotten");
                }
            }
        }
    }
}
