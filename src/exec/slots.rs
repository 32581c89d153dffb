//! How many plugins run at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Caps on runs: of all providers together, and of each.
#[derive(Debug)]
pub(super) struct Slots {
    all: Arc<Semaphore>,
    limit: usize,
    each: usize,
    /// Grows with the names in the configuration, not with requests.
    providers: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    given_back: Arc<Notify>,
}

/// The right to one run. Given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _provider: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    // Last: it is told when both are free.
    _given_back: GivenBack,
}

#[derive(Debug)]
struct GivenBack(Arc<Notify>);

impl Drop for GivenBack {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Slots {
    pub(super) fn new(all: usize, each: usize) -> Self {
        let count = |runs: usize| runs.clamp(1, Semaphore::MAX_PERMITS);
        let (limit, each) = (count(all), count(each));
        let all = Arc::new(Semaphore::new(limit));
        Self { all, limit, each, providers: Mutex::default(), given_back: Arc::default() }
    }

    /// The next free slot for `provider`, first come, first served. `None`: none came free in `patience`.
    pub(super) async fn take(&self, provider: &Arc<str>, patience: Duration) -> Option<Slot> {
        timeout(patience, async {
            // The provider's own first: who waits for a busy provider holds nothing that another could use.
            let of_provider = self.of(provider).acquire_owned().await.ok()?; // never closed
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            let given_back = GivenBack(Arc::clone(&self.given_back));
            Some(Slot { _provider: of_provider, _all: of_all, _given_back: given_back })
        })
        .await
        .ok()
        .flatten()
    }

    /// Resolves when nobody waits for a slot of `provider`, one is free, and another one stays free, unless there is one
    /// in all.
    pub(super) async fn spare(&self, provider: &Arc<str>) {
        let (of_provider, each) = (self.of(provider), self.each);
        let is_spare = |slots: &Semaphore, limit: usize| slots.available_permits() >= limit.min(2);
        loop {
            // Hears of everything from here on, polled or not.
            let given_back = self.given_back.notified();
            // While anybody waits, none is available.
            if is_spare(&of_provider, each) && is_spare(&self.all, self.limit) {
                return;
            }
            given_back.await;
        }
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
    async fn whoever_fetches_ahead_waits_until_two_are_free() {
        let slots = Slots::new(3, 2);
        let (one, other, third) = (Arc::from("one"), Arc::from("other"), Arc::from("third"));
        let is_spare = async |provider| timeout(SOON, slots.spare(provider)).await.is_ok();
        assert!(is_spare(&one).await);
        let held = slots.take(&one, SOON).await.unwrap();
        assert!(!is_spare(&one).await, "one of its two is left, for whoever asks");
        assert!(is_spare(&other).await);
        let also_held = slots.take(&other, SOON).await.unwrap();
        assert!(!is_spare(&third).await, "one of all three is left");
        drop(also_held);
        assert!(is_spare(&other).await);
        let waiting = async { slots.spare(&one).await };
        let giving_back = async { drop(held) };
        tokio::join!(waiting, giving_back);
    }

    /// Looks at what is free in the moment in which it is woken.
    struct OnWake(Arc<Slots>, Mutex<Vec<usize>>);

    impl std::task::Wake for OnWake {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0.all.available_permits());
        }
    }

    #[tokio::test]
    async fn whoever_fetches_ahead_is_woken_when_the_slot_is_free_already() {
        let (slots, provider) = (Arc::new(Slots::new(1, 1)), Arc::from("a"));
        let held = slots.take(&provider, SOON).await.unwrap();
        let on_wake = Arc::new(OnWake(Arc::clone(&slots), Mutex::default()));
        let waker = std::task::Waker::from(Arc::clone(&on_wake));
        let mut waiting = std::pin::pin!(slots.spare(&provider));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert_eq!(*on_wake.1.lock().unwrap(), [1]);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_one_slot_a_free_one_is_spare() {
        let (slots, provider) = (Slots::new(1, 1), Arc::from("a"));
        slots.spare(&provider).await;
        let held = slots.take(&provider, SOON).await.unwrap();
        assert!(timeout(SOON, slots.spare(&provider)).await.is_err());
        drop(held);
        slots.spare(&provider).await;
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
