//! The only reader of the clocks in this crate.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
use portable as platform;

/// Reads the clocks; tests replace it.
pub(crate) type Clock = fn() -> Now;

/// Both clocks, read together. `boot` counts suspend and is never stepped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) wall: SystemTime,
    pub(crate) boot: Duration,
}

/// The clocks of the system.
pub(crate) fn system() -> Now {
    let (wall, boot) = platform::now();
    Now { wall: UNIX_EPOCH + wall, boot }
}

/// The end of a credential by both clocks. The earlier one counts, so a step of the wall clock in either direction and a
/// suspend never extend a credential.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    wall: SystemTime,
    boot: Duration,
}

impl Expiry {
    /// The expiry of a credential that was received at `now` and expires at `wall`.
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

    /// Both clocks follow tokio's clock, which tests pause and advance.
    #[expect(clippy::disallowed_methods, reason = "the paused clock is what a test steps")]
    pub(crate) fn paused() -> Now {
        static START: OnceLock<Instant> = OnceLock::new();
        // The paused clock of one runtime may be behind the first reading in another one.
        let start = START.get_or_init(|| Instant::now() - Duration::from_secs(60));
        let boot = Instant::now().duration_since(*start);
        Now { wall: UNIX_EPOCH + Duration::from_secs(1_800_000_000) + boot, boot }
    }

    #[test]
    fn the_clock_that_comes_first_ends_a_credential() {
        let at = |wall, boot| Now {
            wall: UNIX_EPOCH + Duration::from_secs(wall),
            boot: Duration::from_secs(boot),
        };
        let expiry = Expiry::at(UNIX_EPOCH + Duration::from_secs(1000), at(900, 50));
        for (now, expected) in [
            (at(900, 50), true),
            (at(999, 149), true),
            (at(1000, 60), false),
            (at(100, 149), true),
            (at(100, 150), false),
            (at(2000, 51), false),
        ] {
            assert_eq!(expiry.is_after(now), expected, "{now:?}");
        }
        assert!(!Expiry::at(UNIX_EPOCH, at(900, 50)).is_after(at(0, 50)), "received after its end");
    }

    #[test]
    fn the_wall_clock_agrees_with_the_standard_library() {
        #[expect(clippy::disallowed_methods, reason = "what the coarse clock is compared with")]
        let wall = SystemTime::now();
        let coarse = system().wall;
        let apart = wall.duration_since(coarse).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(1), "{apart:?}");
    }
}
