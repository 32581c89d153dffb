//! When to try the hub again.

use std::time::Duration;

/// Full jitter up to 1 s, 2 s, 4 s … 30 s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    failures: u32,
    jitter: fn() -> f64,
}

impl Backoff {
    pub(super) fn new(jitter: fn() -> f64) -> Self {
        Self { failures: 0, jitter }
    }

    /// One more failure, and how long to wait after it: a hundred brokers that lost one hub do not come back at once.
    pub(super) fn next(&mut self) -> Duration {
        let ceiling = 2_f64.powi(self.failures.min(5).cast_signed()).min(30.0);
        self.failures = self.failures.saturating_add(1);
        Duration::from_secs_f64((ceiling * (self.jitter)()).max(0.1))
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_start_anew_after_a_success() {
        let mut longest = Backoff::new(|| 1.0);
        let pauses: Vec<_> = (0..8).map(|_| longest.next().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        longest.reset();
        assert_eq!(longest.next(), Duration::from_secs(1));
        assert_eq!(Backoff::new(|| 0.0).next(), Duration::from_millis(100), "never without a pause");
    }
}
