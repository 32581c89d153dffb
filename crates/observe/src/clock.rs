//! The clocks, which no other file reads, and how long to wait.

use std::{
    fmt::Debug,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep_until};

pub use credbroker_credential::Now;

/// The clock that counts suspend and is never stepped.
#[cfg(target_os = "linux")]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT: ClockId = ClockId::Monotonic;

/// Reads the time. Tests replace it.
pub trait Clock: Debug + Send + Sync + 'static {
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
        let boot = clock_gettime(BOOT);
        let boot = Duration::try_from(boot).unwrap_or_default(); // never negative
        Now { wall, boot }
    }
}

/// The common phase of periodic tasks: all that are due in the same second wake the idle process once.
#[derive(Clone, Copy, Debug)]
pub struct Beat(Instant);

#[expect(clippy::disallowed_methods, reason = "timers only wake tasks, which then read both clocks")]
impl Beat {
    /// Begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Waits for the next multiple of `period` since the start.
    pub async fn next(self, period: Duration) {
        sleep_until(self.after(Instant::now(), period)).await;
    }

    fn after(self, now: Instant, period: Duration) -> Instant {
        let turns = now.duration_since(self.0).as_nanos() / period.as_nanos().max(1);
        self.0 + period.saturating_mul(u32::try_from(turns + 1).unwrap_or(u32::MAX))
    }
}

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

    #[expect(clippy::disallowed_methods, reason = "the time of the test")]
    #[tokio::test(start_paused = true)]
    async fn periods_that_divide_each_other_end_together() {
        let (second, beat, start) = (Duration::from_secs(1), Beat::start(), Instant::now());
        tokio::time::advance(second / 3).await;
        beat.next(second).await;
        assert_eq!(
            start.elapsed().as_millis(),
            1_000,
            "a task that begins between two beats keeps the phase"
        );
        tokio::join!(beat.next(second), beat.next(second * 2));
        assert_eq!(start.elapsed().as_millis(), 2_000);
        assert_eq!(beat.after(beat.0 + second, second), beat.0 + second * 2, "never the beat of now");
    }

    #[test]
    fn boot_time_moves_forward() {
        let (first, second) = (SystemClock.now(), SystemClock.now());
        assert!(first.boot > Duration::ZERO && second.boot >= first.boot);
    }

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
