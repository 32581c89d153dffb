//! Limits the records of answers from memory. A hit takes no lock, and reads the clock only if there were many.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// The most records of hits in one second.
const PER_SECOND: u32 = 100;
/// One of so many hits over the limit reads the clock.
const LOOK: u64 = 64;

/// The records of hits in this second.
#[derive(Debug, Default)]
pub(super) struct HitBudget {
    taken: AtomicU32,
    /// Milliseconds since boot at which this second began.
    begun: AtomicU64,
    /// Hits without a record since the last record.
    omitted: AtomicU64,
    /// Hits over the limit, to read the clock for some of them.
    over: AtomicU64,
}

impl HitBudget {
    /// Whether this hit gets a record.
    pub(super) fn take(&self, now: impl FnOnce() -> Duration) -> bool {
        if self.take_one() {
            return true;
        }
        if self.over.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK) {
            let now = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
            let begun = self.begun.load(Ordering::Relaxed);
            let is_over = now.saturating_sub(begun) >= 1000;
            let exchanged =
                || self.begun.compare_exchange(begun, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_over && exchanged() {
                self.taken.store(0, Ordering::Relaxed);
                self.over.store(0, Ordering::Relaxed);
                return self.take_one();
            }
        }
        self.omitted.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// The number of hits without a record since this was called last.
    pub(super) fn not_recorded(&self) -> u64 {
        if self.omitted.load(Ordering::Relaxed) == 0 { 0 } else { self.omitted.swap(0, Ordering::Relaxed) }
    }

    fn take_one(&self) -> bool {
        let more = |taken: u32| (taken < PER_SECOND).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_records_and_the_rest_is_counted() {
        let budget = HitBudget::default();
        let recorded = |hits: u64, second: u64| {
            (0..hits).filter(|_| budget.take(|| Duration::from_secs(second))).count()
        };
        assert_eq!(recorded(1000, 10), 200, "the first second begins with the first look at the clock");
        assert_eq!(budget.not_recorded(), 800);
        assert_eq!(budget.not_recorded(), 0);
        assert_eq!(recorded(1000, 10), 0);
        let later = recorded(1000, 11);
        assert!((1..=100).contains(&later), "{later}");
        assert_eq!(budget.not_recorded(), 2000 - later as u64);
    }

    #[test]
    fn few_hits_never_read_the_clock() {
        let budget = HitBudget::default();
        assert!((0..PER_SECOND).all(|_| budget.take(|| panic!("read"))));
    }
}
