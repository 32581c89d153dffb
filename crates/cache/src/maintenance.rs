//! Refreshing and forgetting keys: once a second those that are due or idle, and on demand.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tracing::debug;

use super::{
    cache::{AT_A_TIME, CredentialCache},
    entries::{Interest, KeyEntries},
    entry::KeyEntry,
    prompts::Asker,
    request::Selector,
    state::{NextAction, decide},
};
use credbroker_observe::clock::{Beat, Now};
use credbroker_plugin::{ProfileName, Target};
use credbroker_runner::{PluginRunner, Urgency};

/// How often the maintenance runs. It bounds how late a refresh starts, also after a step of the clock and a suspend.
const PERIOD: Duration = Duration::from_secs(1);

impl<R: PluginRunner> CredentialCache<R> {
    /// Refreshes credentials ahead of expiry, evicts idle keys, and starts runs whose time has come, until the broker drains.
    pub async fn keep_fresh(&self, beat: Beat) {
        let parts = &self.inner.parts;
        let fresh = async { tokio::join!(self.maintain(beat), parts.scheduler.keep_time()) };
        parts.draining.run_until_cancelled(fresh).await;
    }

    /// Handles every entry once a second while there are any.
    async fn maintain(&self, beat: Beat) {
        loop {
            if self.is_empty() {
                self.inner.occupied.notified().await;
            } else {
                beat.next(PERIOD).await;
            }
            self.visit(None, |entry, now| self.maintain_one(entry, now)).await;
        }
    }

    fn maintain_one(&self, entry: &Arc<KeyEntry>, now: Now) {
        self.follow_account(entry);
        if entry.watchers.load(Ordering::Relaxed) > 0 {
            // Wakes the watches of an expired credential.
            entry.cell.send_if_modified(|state| state.current.is_some() && state.valid(now).is_none());
        }
        match entry.next_action(now) {
            NextAction::Keep => {}
            NextAction::Refresh(urgency) => {
                let file = entry.spec.file.version();
                self.try_claim(entry, (urgency, None, None), |state| {
                    decide(state, (Asker::Broker, Duration::ZERO), file, now)
                });
            }
            NextAction::Adjust(urgency) => {
                entry.queued_in_background().inspect(|run| run.set_floor(urgency));
            }
            NextAction::Abandon => {
                entry.queued_in_background().inspect(|run| run.abandoned.cancel());
            }
            NextAction::Forget => {
                let mut entries = self.lock();
                // Checked again under the lock: a caller may have entered meanwhile.
                if entry.next_action(now) == NextAction::Forget {
                    entries.remove(entry);
                    self.changed();
                    debug!(provider = %entry.spec.provider.name, id = %entry.spec.key, "idle credential evicted");
                }
            }
        }
    }

    /// Runs the plugin of every selected key now, waits for the outcomes, and returns the number of keys. The old
    /// credentials are served meanwhile, and stay if a run fails. The first run of each issuer starts even while the issuer is
    /// paused; the others are background work.
    pub async fn refresh(&self, selector: &Selector) -> usize {
        // The interest is held until the end: a queued run without a caller is abandoned.
        let held = { self.lock().hold(selector) };
        let selected: Vec<_> = held.into_iter().map(|entry| self.interest(entry)).collect();
        let (mut issuers, mut runs) = (HashSet::new(), Vec::with_capacity(selected.len()));
        for Interest { entry, .. } in &selected {
            let is_first = issuers.insert(&entry.spec.provider.issuer.name);
            let urgency = if is_first { Urgency::Forced } else { Urgency::Background };
            self.settle(entry).await;
            if let Some(run) = self.force_claim(entry, urgency) {
                run.set_floor(urgency);
                runs.push(run);
            }
        }
        for run in runs {
            // The list shows the outcome.
            drop(run.outcome().await);
        }
        selected.len()
    }

    /// Forgets the selected keys and returns their number. Secrets are wiped when the last response that holds them has
    /// been sent. Open watches of what is forgotten end with [`CacheError::Evicted`](crate::CacheError::Evicted). The outcome of a run that started before goes only to the
    /// callers that wait for it: the run may have started as another account.
    pub fn evict(&self, selector: &Selector) -> usize {
        let evicted = { self.lock().select(selector, None, usize::MAX) };
        for some in evicted.chunks(AT_A_TIME) {
            let mut entries = self.lock();
            // Interest grows only under this lock, so a request does not find them later.
            some.iter().filter(|entry| !entry.is_in_use()).for_each(|entry| entries.remove(entry));
        }
        let count = evicted.len();
        let is_unused = |entry: &Arc<KeyEntry>| !entry.is_in_map() && entry.cell.borrow().run.is_none();
        let (unused, used): (Vec<_>, Vec<_>) = evicted.into_iter().partition(is_unused);
        for entry in &used {
            entry.evict();
            self.resized(entry);
        }
        self.changed();
        // Requests no longer find these entries. Wiping thousands of them here would delay other requests.
        self.inner.parts.tasks.spawn_blocking(move || {
            for entry in unused {
                entry.forget();
            }
        });
        count
    }

    /// Forgets the credentials of providers that are no longer active, and returns their number. Their runs end, and
    /// callers that wait or watch get [`CacheError::Retired`](crate::CacheError::Retired).
    pub fn forget_retired(&self) -> usize {
        let is_retired = |entry: &KeyEntry| entry.spec.provider.state.retirement().is_some();
        self.take_out(|entries| entries.matching(is_retired), KeyEntry::retire)
    }

    /// Forgets the credentials that came out of the terminal of a caller, which could have forged them, and ends the runs in
    /// terminals, if other users share their provider by now.
    pub fn forget_leased(&self) {
        // A run that starts afterwards finds the provider shared when it ends.
        let shared = { self.lock().matching(|entry| entry.spec.provider.state.is_shared()) };
        for entry in &shared {
            entry.forget_leased();
            self.resized(entry);
        }
    }

    /// Forgets the credentials of `profile`, except those for its current target `now`. Callers that wait for a run still get
    /// its outcome, for the target that they asked for; a run without callers is ended.
    pub fn forget(&self, profile: &ProfileName, now: Option<&Arc<Target>>) {
        let is_stale = |entry: &&Arc<KeyEntry>| {
            let target = entry.spec.target.as_ref();
            target.is_some_and(|target| !now.is_some_and(|now| now.is_same(target)))
        };
        let stale =
            |entries: &KeyEntries| entries.of_profile(profile).iter().filter(is_stale).cloned().collect();
        self.take_out(stale, KeyEntry::forget);
    }

    /// Takes the entries that `select` finds out of the map, does `end` to each of them, and returns their number.
    fn take_out(&self, select: impl FnOnce(&KeyEntries) -> Vec<Arc<KeyEntry>>, end: fn(&KeyEntry)) -> usize {
        let taken = {
            let mut entries = self.lock();
            let taken = select(&entries);
            for entry in &taken {
                entries.remove(entry);
            }
            taken
        };
        for entry in &taken {
            end(entry);
        }
        self.changed();
        taken.len()
    }
}
