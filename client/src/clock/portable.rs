//! The clocks of other systems than Linux.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since 1970 and the time since an arbitrary start.
///
/// The monotonic clock of macOS counts suspend, as `CLOCK_BOOTTIME` of Linux does (`clock_gettime(3)`; `std`'s `Instant`
/// does not). Where a system's monotonic clock stops in suspend, the wall clock alone ends a credential after one.
pub(super) fn now() -> (Duration, Duration) {
    (read(ClockId::Realtime), read(ClockId::Monotonic))
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_advance() {
        let (wall, monotonic) = now();
        let advanced = |(later_wall, later)| later_wall > wall && later > monotonic;
        assert!((0..100_000_000).any(|_| advanced(now())), "{wall:?} {monotonic:?}");
    }
}
