//! How long to wait after a failure.

use std::time::Duration;

/// The wait after the `failures`th failure in a row, which counts from 1: uniform between zero and a ceiling that starts
/// at `first` and doubles up to `longest` (full jitter), so that many brokers that lost one server do not all return at
/// once. `u` is uniform in [0, 1).
pub fn full_jitter(failures: u32, first: Duration, longest: Duration, u: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    first.saturating_mul(1 << doublings).min(longest).mul_f64(u)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let ceilings =
            [0, 1, 2, 3, 4, 5, 6, 7, u32::MAX].map(|n| full_jitter(n, first, longest, 1.0).as_secs());
        assert_eq!(ceilings, [1, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(full_jitter(3, first, longest, 0.5), Duration::from_secs(2));
        assert_eq!(full_jitter(3, first, longest, 0.0), Duration::ZERO);
    }
}
