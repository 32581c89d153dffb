//! When a credential has expired.

use std::time::{Duration, SystemTime};

use super::Now;

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

    /// The time until then, by the clock that comes first.
    #[cfg(feature = "rustls")]
    pub(crate) fn left(&self, now: Now) -> Duration {
        let left = self.wall.duration_since(now.wall).unwrap_or_default();
        left.min(self.boot.saturating_sub(now.boot))
    }

    pub(crate) fn is_after(&self, now: Now) -> bool {
        now.wall < self.wall && now.boot < self.boot
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

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
}
