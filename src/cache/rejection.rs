//! Credentials that the API server refused: what a report may cost.

use std::time::Duration;

use crate::credential::{Issued, Now};

/// A generation younger than this is not asked for again, and between runs for rejections there is at least so much.
const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What is known of rejections of one key. A client that reports, or asks again, for ever must not become a storm at
/// the issuer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections {
    /// Somebody reported the generation that is held.
    reported: bool,
    /// Between the last run for a rejection and the next one; zero before the first.
    pause: Duration,
    /// Time since boot before which no rejection starts a run.
    not_before: Duration,
}

impl Rejections {
    /// Takes note of a rejection of `issued`: true if it is worth a run.
    pub(crate) fn admit(&mut self, issued: &Issued, now: Now) -> bool {
        self.reported = true;
        let young = now.boot < issued.fetched.boot.saturating_add(PAUSE);
        if young || now.boot < self.not_before {
            return false;
        }
        let longest = (issued.lifetime / 2).clamp(PAUSE, LONGEST_PAUSE);
        self.pause = (self.pause * 2).clamp(PAUSE, longest);
        self.not_before = now.boot.saturating_add(self.pause);
        true
    }

    /// Another generation took the place of the one that is known about. One that nobody rejected ends the series.
    pub(crate) fn rotated(&mut self) {
        if !self.reported {
            *self = Self::default();
        }
        self.reported = false;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use super::*;
    use crate::credential::{Generation, Material};

    fn at(secs: u64) -> Now {
        let since = Duration::from_secs(secs);
        Now { wall: SystemTime::UNIX_EPOCH + since, boot: since }
    }

    fn issued(fetched: u64, lifetime: u64) -> Issued {
        let (fetched, lifetime) = (at(fetched), Duration::from_secs(lifetime));
        Issued {
            generation: Generation::new("e".into(), 1),
            material: Arc::new(Material::default()),
            fetched,
            expires_at: fetched.wall + lifetime,
            lifetime,
            within_skew: false,
        }
    }

    #[test]
    fn runs_for_rejections_are_ten_seconds_apart_then_twice_that_up_to_five_minutes() {
        let (mut rejections, mut fetched) = (Rejections::default(), 0);
        let mut admitted = Vec::new();
        for now in 0..2_000 {
            if rejections.admit(&issued(fetched, 3_600), at(now)) {
                admitted.push(now);
                fetched = now;
                rejections.rotated();
            }
        }
        let pauses: Vec<_> = admitted.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(admitted[0], 10, "a fresh one is not asked for again");
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]);
    }

    #[test]
    fn a_pause_is_at_most_half_a_lifetime() {
        let (mut rejections, mut admitted) = (Rejections::default(), Vec::new());
        for now in 0..200 {
            if rejections.admit(&issued(0, 60), at(now)) {
                admitted.push(now);
            }
        }
        assert_eq!(admitted, [10, 20, 40, 70, 100, 130, 160, 190]);
    }

    #[test]
    fn a_generation_that_nobody_rejects_ends_the_series() {
        let mut rejections = Rejections::default();
        for (now, admitted) in [(10, true), (20, true), (30, false)] {
            assert_eq!(rejections.admit(&issued(0, 3_600), at(now)), admitted, "{now}");
        }
        rejections.rotated(); // the rejected one goes
        rejections.rotated(); // and so does one that was good
        assert!(rejections.admit(&issued(0, 3_600), at(31)));
        assert!(rejections.admit(&issued(0, 3_600), at(41)), "ten seconds again");
    }
}
