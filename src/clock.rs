//! The clocks. No other file reads them.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

pub use crate::credential::Now;

/// Reads the time. Tests replace it.
pub trait Clock: Send + Sync + 'static {
    /// Both clocks, read together.
    fn now(&self) -> Now;
}

/// The clocks of the kernel: the wall clock, and `CLOCK_BOOTTIME`, which counts suspend and is never stepped.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        #[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
        let wall = SystemTime::now();
        let boot = clock_gettime(ClockId::Boottime);
        let boot = Duration::try_from(boot).unwrap_or_default(); // never negative
        Now { wall, boot }
    }
}

/// Time since boot without suspend, a few milliseconds late. For ages that decide nothing about credentials: reading it
/// costs less than an atomic operation on contended memory.
pub(crate) fn coarse() -> Duration {
    Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).unwrap_or_default() // never negative
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_moves_forward() {
        let (first, second) = (SystemClock.now(), SystemClock.now());
        assert!(first.boot > Duration::ZERO && second.boot >= first.boot);
    }
}
