//! The pause before the next watch.

use std::time::Duration;

use crate::error::Error;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// A broker restarts within a moment, and its clients must be current again within five seconds.
const LONGEST_FOR_LOST: Duration = Duration::from_secs(2);

/// Pauses that double. Half of each is random, so that a thousand watchers do not reconnect at the same moment.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The next pause is the shortest again.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The pause after `error`, `random` in [0, 1).
    pub(crate) fn next(&mut self, error: Option<&Error>, random: f64) -> Duration {
        let lost = error.is_none_or(|error| error.may_be_starting() || error.is_silence());
        let longest = if lost { LONGEST_FOR_LOST } else { LONGEST };
        let doubled = FIRST.saturating_mul(1 << self.attempts.min(16)).min(longest);
        self.attempts = self.attempts.saturating_add(1);
        let jittered = doubled.mul_f64(0.5 + random / 2.0);
        match error {
            // The broker caches its failure that long: an earlier request gets the same answer.
            Some(Error::Failed(failure)) if !lost => jittered.max(failure.retry_after.unwrap_or_default()),
            _ => jittered,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use credbroker_proto::Code;

    use super::*;
    use crate::{failure::Failure, socket::Socket};

    fn failed(retry_after: Option<Duration>) -> Error {
        Failure { retry_after, ..Failure::new(Code::Unavailable, "") }.into()
    }

    #[test]
    fn pauses_after_failures_double_up_to_half_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..11).map(|_| backoff.next(Some(&failed(None)), 1.0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(backoff.next(Some(&failed(None)), 0.0), LONGEST / 2);
        backoff.reset();
        assert_eq!(backoff.next(Some(&failed(None)), 0.0), FIRST / 2);
        for seconds in [7, 600].map(Duration::from_secs) {
            assert_eq!(backoff.next(Some(&failed(Some(seconds))), 0.0), seconds);
        }
    }

    #[test]
    fn a_missing_broker_is_tried_every_two_seconds_however_long_it_is_gone() {
        let source = Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let absent = Error::Unreachable { socket: Socket::at("/s"), source };
        for lost in [absent, Error::silent(&Socket::at("/s"), Duration::from_secs(5))] {
            let mut backoff = Backoff::default();
            let longest = (0..100).map(|_| backoff.next(Some(&lost), 0.999_999)).max();
            assert!(longest <= Some(LONGEST_FOR_LOST), "{longest:?}");
            assert!(backoff.next(None, 0.0) >= LONGEST_FOR_LOST / 2);
        }
    }
}
