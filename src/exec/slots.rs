//! How many plugins run at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Caps on runs: of all providers together, and of each.
#[derive(Debug)]
pub(super) struct Slots {
    all: Arc<Semaphore>,
    each: usize,
    /// Grows with the names in the configuration, not with requests.
    providers: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// The right to one run. Given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _provider: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Slots {
    pub(super) fn new(all: usize, each: usize) -> Self {
        let count = |runs: usize| runs.clamp(1, Semaphore::MAX_PERMITS);
        let (all, each) = (Arc::new(Semaphore::new(count(all))), count(each));
        Self { all, each, providers: Mutex::default() }
    }

    /// The next free slot for `provider`, first come, first served. `None`: none came free in `patience`.
    pub(super) async fn take(&self, provider: &Arc<str>, patience: Duration) -> Option<Slot> {
        timeout(patience, async {
            // The provider's own first: who waits for a busy provider holds nothing that another could use.
            let of_provider = self.of(provider).acquire_owned().await.ok()?; // never closed
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Slot { _provider: of_provider, _all: of_all })
        })
        .await
        .ok()
        .flatten()
    }

    fn of(&self, provider: &Arc<str>) -> Arc<Semaphore> {
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = providers.entry(Arc::clone(provider));
        Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_busy_provider_leaves_slots_to_the_others() {
        let slots = Slots::new(3, 1);
        let (busy, other) = ("busy".into(), "other".into());
        let held = slots.take(&busy, SOON).await.unwrap();
        let waiting = async { assert!(slots.take(&busy, SOON).await.is_none()) };
        let free = async { assert!(slots.take(&other, SOON).await.is_some()) };
        tokio::join!(waiting, free);
        drop(held);
        assert!(slots.take(&busy, SOON).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn all_providers_together_are_capped() {
        let slots = Slots::new(2, 2);
        let held =
            (slots.take(&"a".into(), SOON).await.unwrap(), slots.take(&"b".into(), SOON).await.unwrap());
        assert!(slots.take(&"c".into(), SOON).await.is_none());
        drop(held);
        assert!(slots.take(&"c".into(), SOON).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_leaves_no_trace() {
        let slots = Slots::new(1, 1);
        let held = slots.take(&"a".into(), SOON).await.unwrap();
        assert!(slots.take(&"a".into(), SOON).await.is_none());
        assert!(slots.take(&"b".into(), SOON).await.is_none());
        drop(held);
        assert!(slots.take(&"b".into(), SOON).await.is_some());
        assert!(slots.take(&"a".into(), SOON).await.is_some());
    }
}
