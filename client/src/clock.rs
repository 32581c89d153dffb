//! The only reader of the clocks in this crate.

use std::{
    cell::Cell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// Tells the time; tests step it.
pub(crate) type Clock = fn() -> Now;

/// Both clocks, read together. `boot` counts suspend and knows no step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) wall: SystemTime,
    pub(crate) boot: Duration,
}

/// The kernel's clocks, by their last tick, a few milliseconds ago: an expiry has whole seconds, and this is read with
/// every request.
///
/// The time since boot has no such cheap clock. It is the monotonic one and the time spent in suspend, which is looked
/// up again whenever the wall clock and the monotonic one moved apart: by a suspend, or by a step.
pub(crate) fn system() -> Now {
    let wall = read(ClockId::RealtimeCoarse);
    let monotonic = read(ClockId::MonotonicCoarse);
    let asleep = ASLEEP.with(|known| {
        let look_up = || read(ClockId::Boottime).saturating_sub(monotonic);
        let now = asleep(known.get(), wall.saturating_sub(monotonic), look_up);
        known.set(Some(now));
        now.time
    });
    Now { wall: UNIX_EPOCH + wall, boot: monotonic + asleep }
}

/// The time in suspend, and how far the wall clock was ahead of the monotonic one when it was looked up.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asleep {
    apart: Duration,
    time: Duration,
}

/// What is known holds as long as the clocks did not move apart.
fn asleep(known: Option<Asleep>, apart: Duration, look_up: impl FnOnce() -> Duration) -> Asleep {
    match known {
        Some(known) if known.apart.abs_diff(apart) < APART => known,
        _ => Asleep { apart, time: look_up() },
    }
}

/// More than ticks and the slewing of a few seconds; less than any suspend or step that matters.
const APART: Duration = Duration::from_millis(50);

thread_local! {
    static ASLEEP: Cell<Option<Asleep>> = const { Cell::new(None) };
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// When a credential ends, by both clocks: whichever comes first. A step of the wall clock in any direction and a
/// suspend all fail safe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) wall: SystemTime,
    boot: Duration,
}

impl End {
    /// Of what was received at `now` and expires at `wall`.
    pub(crate) fn at(wall: SystemTime, now: Now) -> Self {
        let left = wall.duration_since(now.wall).unwrap_or_default();
        Self { wall, boot: now.boot.saturating_add(left) }
    }

    pub(crate) fn is_after(&self, now: Now) -> bool {
        now.wall < self.wall && now.boot < self.boot
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::OnceLock;

    use tokio::time::Instant;

    use super::*;

    /// Both clocks as tokio's own goes, which tests pause and advance.
    #[expect(clippy::disallowed_methods, reason = "the paused clock is what a test steps")]
    pub(crate) fn paused() -> Now {
        static START: OnceLock<Instant> = OnceLock::new();
        // A runtime's paused clock may stand before the first reading of another one's.
        let start = START.get_or_init(|| Instant::now() - Duration::from_secs(60));
        let boot = Instant::now().duration_since(*start);
        Now { wall: UNIX_EPOCH + Duration::from_secs(1_800_000_000) + boot, boot }
    }

    #[test]
    fn whichever_clock_comes_first_ends_it() {
        let at = |wall, boot| Now {
            wall: UNIX_EPOCH + Duration::from_secs(wall),
            boot: Duration::from_secs(boot),
        };
        let end = End::at(UNIX_EPOCH + Duration::from_secs(1000), at(900, 50));
        for (now, expected) in [
            (at(900, 50), true),
            (at(999, 149), true),
            (at(1000, 60), false),
            (at(100, 149), true),
            (at(100, 150), false),
            (at(2000, 51), false),
        ] {
            assert_eq!(end.is_after(now), expected, "{now:?}");
        }
        assert!(!End::at(UNIX_EPOCH, at(900, 50)).is_after(at(0, 50)), "received after its end");
    }

    #[test]
    fn the_kernels_clocks_agree_with_the_standard_library() {
        #[expect(clippy::disallowed_methods, reason = "what the coarse clock is compared with")]
        let wall = SystemTime::now();
        let coarse = system().wall;
        let apart = wall.duration_since(coarse).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(1), "{apart:?}");
        let boot = system().boot.abs_diff(read(ClockId::Boottime));
        assert!(boot < Duration::from_secs(1), "{boot:?}");
    }

    #[test]
    fn the_time_in_suspend_is_looked_up_again_after_a_suspend_and_after_a_step() {
        let secs = Duration::from_secs;
        let first = asleep(None, secs(1000), || secs(5));
        assert_eq!(first, Asleep { apart: secs(1000), time: secs(5) });
        let slewed = secs(1000) + Duration::from_millis(20);
        assert_eq!(asleep(Some(first), slewed, || panic!("nothing happened")), first);
        for apart in [secs(1060), secs(940)] {
            assert_eq!(asleep(Some(first), apart, || secs(65)), Asleep { apart, time: secs(65) });
        }
    }
}
