//! The only reader of the clocks in this crate.

pub(crate) mod expiry;
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
    fn the_wall_clock_agrees_with_the_standard_library() {
        #[expect(clippy::disallowed_methods, reason = "what the coarse clock is compared with")]
        let wall = SystemTime::now();
        let coarse = system().wall;
        let apart = wall.duration_since(coarse).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(1), "{apart:?}");
    }
}
