//! The clocks of Linux.

use std::{cell::Cell, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// The time since 1970 and the time since boot, suspend included.
///
/// Both are coarse: they are as old as the last tick of the kernel, a few milliseconds. An expiry has whole seconds, and
/// every request reads them. The time since boot has no coarse clock, so it is computed: the coarse monotonic clock plus
/// the time in suspend, which is read again when the wall clock and the monotonic clock have moved apart (a suspend or a
/// clock step).
pub(super) fn now() -> (Duration, Duration) {
    let wall = read(ClockId::RealtimeCoarse);
    let monotonic = read(ClockId::MonotonicCoarse);
    let suspended = SUSPENDED.with(|known| {
        let read_suspended = || read(ClockId::Boottime).saturating_sub(monotonic);
        let suspended = suspended(known.get(), wall.saturating_sub(monotonic), read_suspended);
        known.set(Some(suspended));
        suspended.time
    });
    (wall, monotonic + suspended)
}

/// The time in suspend, and the distance of the wall clock from the monotonic clock when it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Suspended {
    distance: Duration,
    time: Duration,
}

/// The known value stays valid while the distance between the clocks stays the same.
fn suspended(known: Option<Suspended>, distance: Duration, read: impl FnOnce() -> Duration) -> Suspended {
    match known {
        Some(known) if known.distance.abs_diff(distance) < TOLERANCE => known,
        _ => Suspended { distance, time: read() },
    }
}

/// More than a few ticks and the slewing of some seconds, less than any suspend or step that matters.
const TOLERANCE: Duration = Duration::from_millis(50);

thread_local! {
    static SUSPENDED: Cell<Option<Suspended>> = const { Cell::new(None) };
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_computed_time_since_boot_agrees_with_the_kernel() {
        let (_, boot) = now();
        let difference = boot.abs_diff(read(ClockId::Boottime));
        assert!(difference < Duration::from_secs(1), "{difference:?}");
    }

    #[test]
    fn the_time_in_suspend_is_read_again_after_a_suspend_and_after_a_step() {
        let secs = Duration::from_secs;
        let first = suspended(None, secs(1000), || secs(5));
        assert_eq!(first, Suspended { distance: secs(1000), time: secs(5) });
        let slewed = secs(1000) + Duration::from_millis(20);
        assert_eq!(suspended(Some(first), slewed, || panic!("nothing happened")), first);
        for distance in [secs(1060), secs(940)] {
            assert_eq!(suspended(Some(first), distance, || secs(65)), Suspended { distance, time: secs(65) });
        }
    }
}
