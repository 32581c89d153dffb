//! Numbers that many threads add to.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

/// How long a plugin or a caller may take: from the time of a hit to that of a login.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Counters by their labels, for events that are rare enough to take a lock.
pub(super) type Counts<L> = Mutex<BTreeMap<L, u64>>;

pub(super) fn add_one<L: Ord>(counts: &Counts<L>, labels: L) {
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(labels).or_default() += 1;
}

/// The counts now, in the order of their labels.
pub(super) fn all<L: Copy + Ord>(counts: &Counts<L>) -> impl Iterator<Item = (L, u64)> + use<L> {
    counts.lock().unwrap_or_else(PoisonError::into_inner).clone().into_iter()
}

/// Durations, counted in buckets. That of the library takes a lock for each value, and takes one value at a time.
#[derive(Debug)]
pub(super) struct Histogram {
    /// Upper bounds in seconds, ascending, and the number of values up to each that no earlier bucket has.
    buckets: Box<[(f64, AtomicU64)]>,
    micros: AtomicU64,
}

/// The state of a histogram at one moment.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) buckets: Vec<(f64, u64)>,
    /// The sum of all values, in seconds.
    pub(super) sum: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new(&SECONDS)
    }
}

impl Histogram {
    /// An empty histogram with these upper bounds in seconds, ascending, and one bucket more for longer values.
    pub(super) fn new(bounds: &[f64]) -> Self {
        let buckets = bounds.iter().chain([&f64::INFINITY]).map(|bound| (*bound, AtomicU64::default()));
        Self { buckets: buckets.collect(), micros: AtomicU64::default() }
    }

    pub(super) fn observe(&self, value: Duration) {
        if let Some((_, count)) = self.buckets.iter().find(|(bound, _)| value.as_secs_f64() <= *bound) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The counts now, with `instant` more values of zero seconds.
    pub(super) fn observed(&self, instant: u64) -> Observed {
        let buckets = self.buckets.iter().map(|(bound, count)| (*bound, count.load(Ordering::Relaxed)));
        let mut buckets: Vec<_> = buckets.collect();
        buckets.first_mut().into_iter().for_each(|(_, count)| *count += instant);
        Observed { buckets, sum: seconds(self.micros.load(Ordering::Relaxed)) }
    }
}

impl Observed {
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl EncodeMetric for Observed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count(), &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

pub(super) fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [0, 500, 501, 1000, 1001, 60_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let observed = histogram.observed(3);
        assert_eq!(observed.buckets, [(0.5, 5), (1.0, 2), (f64::INFINITY, 2)]);
        assert_eq!(observed.count(), 9);
        assert!((observed.sum - 63.002).abs() < 1e-9, "{}", observed.sum);
    }
}
