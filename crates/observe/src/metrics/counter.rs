//! Numbers that many threads add to.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn add_one(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by their labels, for events that are rare enough to take a lock.
#[derive(Debug)]
pub(super) struct Counts<L>(Mutex<BTreeMap<L, u64>>);

impl<L> Default for Counts<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Copy + Ord> Counts<L> {
    pub(super) fn add_one(&self, labels: L) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(labels).or_default() += 1;
    }

    /// The counts now, in the order of their labels.
    pub(super) fn all(&self) -> Vec<(L, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(labels, count)| (*labels, *count)).collect()
    }
}

/// Durations, counted in buckets and one more for those that are longer than all bounds.
#[derive(Debug)]
pub(super) struct Histogram {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    buckets: Box<[Counter]>,
    longer: Counter,
    micros: Counter,
}

/// The state of a histogram at one moment.
#[derive(Debug)]
pub(super) struct Observed {
    /// The upper bound of each bucket, and how many values are at most that large.
    pub(super) cumulative: Vec<(f64, u64)>,
    /// The number of values.
    pub(super) count: u64,
    /// The sum of all values, in seconds.
    pub(super) sum: f64,
}

impl Histogram {
    /// An empty histogram with these upper bounds in seconds, ascending.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let buckets = bounds.iter().map(|_| Counter::default()).collect();
        Self { bounds, buckets, longer: Counter::default(), micros: Counter::default() }
    }

    pub(super) fn observe(&self, value: Duration) {
        let seconds = value.as_secs_f64();
        let at = self.bounds.iter().position(|bound| seconds <= *bound);
        at.and_then(|at| self.buckets.get(at)).unwrap_or(&self.longer).add_one();
        self.micros.add(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    /// The counts now, with `instant` more values of zero seconds.
    pub(super) fn observed(&self, instant: u64) -> Observed {
        let mut count = instant;
        let cumulative = self.bounds.iter().zip(&self.buckets).map(|(bound, bucket)| {
            count += bucket.get();
            (*bound, count)
        });
        let cumulative = cumulative.collect();
        Observed { cumulative, count: count + self.longer.get(), sum: seconds(self.micros.get()) }
    }
}

/// Microseconds as seconds.
pub(super) fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_every_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [0, 500, 501, 1000, 1001, 60_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let observed = histogram.observed(3);
        assert_eq!(observed.cumulative, [(0.5, 5), (1.0, 7)]);
        assert_eq!(observed.count, 9);
        assert!((observed.sum - 63.002).abs() < 1e-9, "{}", observed.sum);
    }
}
