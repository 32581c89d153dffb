//! Numbers that many threads add to.

use std::{
    sync::atomic::{AtomicU64, Ordering},
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

/// Durations, counted in `N` buckets and one more for those that are longer than all bounds.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64; N],
    buckets: [Counter; N],
    longer: Counter,
    micros: Counter,
}

/// The state of a histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The upper bound of each bucket, and how many values are at most that large.
    pub cumulative: Vec<(f64, u64)>,
    /// The number of values.
    pub count: u64,
    /// The sum of all values, in seconds.
    pub sum: f64,
}

impl<const N: usize> Histogram<N> {
    /// An empty histogram with these upper bounds in seconds, ascending.
    pub fn new(bounds: &'static [f64; N]) -> Self {
        let (buckets, longer, micros) =
            (std::array::from_fn(|_| Counter::default()), Counter::default(), Counter::default());
        Self { bounds, buckets, longer, micros }
    }

    /// Counts one value.
    pub fn observe(&self, value: Duration) {
        let seconds = value.as_secs_f64();
        let at = self.bounds.iter().position(|bound| seconds <= *bound);
        at.and_then(|at| self.buckets.get(at)).unwrap_or(&self.longer).add_one();
        self.micros.add(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    /// The counts now, with `instant` more values of zero seconds.
    pub fn observed(&self, instant: u64) -> Observed {
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
