//! What people, and the hub, can do about what is held.

use std::sync::{Arc, atomic::Ordering};

use super::{
    CredentialCache, Selector,
    entry::{Entry, Interest},
    policy::Decision,
};
use crate::{
    exec::{PluginRunner, Urgency},
    plugin::{ProfileName, Target},
};

impl<R: PluginRunner> CredentialCache<R> {
    /// Runs the plugin now for everything that `selector` selects, waits for the outcomes, and returns how many runs
    /// succeeded and how many failed. The old credentials are served meanwhile, and stay if a run fails.
    ///
    /// The first run starts even while the issuer is paused; when there are many, the others are background work.
    pub async fn refresh(&self, selector: Selector<'_>) -> (usize, usize) {
        // Held until the end: a queued run without a caller is given up.
        let held: Vec<_> = {
            let entries = self.lock();
            entries.after(selector, None, usize::MAX).iter().map(Interest::new).collect()
        };
        let mut flights = Vec::with_capacity(held.len());
        for (index, Interest(entry)) in held.iter().enumerate() {
            let urgency = if index == 0 { Urgency::Forced } else { Urgency::Background };
            let look = entry.look(urgency, |_| Decision::Wait);
            self.start(entry, &look);
            if let Some(flight) = look.flight {
                flight.set_floor(urgency);
                flights.push(flight);
            }
        }
        let (mut succeeded, mut failed) = (0, 0);
        for flight in flights {
            match flight.landed().await {
                Some(Ok(_)) => succeeded += 1,
                Some(Err(_)) => failed += 1,
                None => {}
            }
        }
        (succeeded, failed)
    }

    /// Forgets what `selector` selects, and returns how many that were. Secrets are wiped when the last
    /// answer that holds them is sent. Watches get the next one.
    ///
    /// What a run brings that had started before goes to those who waited for it, and is not kept: it may have started
    /// as another account.
    pub fn evict(&self, selector: Selector<'_>) -> usize {
        let evicted = self.lock().take_out(selector);
        let count = evicted.len();
        let (leave, stay): (Vec<_>, Vec<_>) =
            evicted.into_iter().partition(|entry| entry.leaves.load(Ordering::Relaxed));
        for entry in &stay {
            entry.forget();
        }
        // No request finds these any more. To wipe thousands of them here would hold up others.
        self.inner.parts.tasks.spawn_blocking(move || {
            for entry in leave {
                entry.forget();
            }
        });
        count
    }

    /// Forgets what is held for `profile`, but for what leads to `now`: the profile leads elsewhere, or is gone. Callers
    /// that wait for a run in flight still get its outcome, for the place that they asked for; a run without callers
    /// ends.
    pub fn forget(&self, profile: &ProfileName, now: Option<&Arc<Target>>) {
        let is_stale = |entry: &Arc<Entry>| {
            let target = entry.spec.target.as_ref();
            target.is_some_and(|target| !now.is_some_and(|now| now.is_same(target)))
        };
        let gone: Vec<_> = {
            let mut entries = self.lock();
            let gone = entries.of_profile(profile).iter().filter(|entry| is_stale(entry)).cloned().collect();
            for entry in &gone {
                entries.remove(entry);
            }
            gone
        };
        for entry in &gone {
            entry.forget();
        }
    }
}
