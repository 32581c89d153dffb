//! How long to wait, and how often to try again.

use std::time::Duration;

/// How long a call without a runtime waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For a broker that is starting. Default: 5 seconds.
    pub broker_start: Duration,
    /// For everything, the start included. Default: 45 seconds, which is longer than the default limit of a plugin run, so
    /// that the run's error arrives.
    pub total: Duration,
    /// A call that attends a plugin run waits as long as the run may take, even if that is longer than `total`. Default:
    /// false.
    pub follow_run: bool,
    /// For the first byte of a broker that has accepted the connection. A broker sends it immediately. Default: 5 seconds.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let [broker_start, total, silence] = [5, 45, 5].map(Duration::from_secs);
        Self { broker_start, total, follow_run: false, silence }
    }
}

impl Timeouts {
    /// Sets the time for a broker that is starting.
    #[must_use]
    pub fn broker_start(mut self, limit: Duration) -> Self {
        self.broker_start = limit;
        self
    }

    /// Sets the time for everything.
    #[must_use]
    pub fn total(mut self, limit: Duration) -> Self {
        self.total = limit;
        self
    }

    /// Sets whether a call that attends a plugin run waits as long as the run may take.
    #[must_use]
    pub fn follow_run(mut self, follow_run: bool) -> Self {
        self.follow_run = follow_run;
        self
    }

    /// Sets the time for the first byte of a broker.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }
}

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The pauses between attempts: 50 ms, doubled up to a second, with a limited sum.
#[derive(Debug)]
pub(super) struct Pauses {
    left: Duration,
    next: Duration,
}

impl Pauses {
    pub(super) const fn new(sum: Duration) -> Self {
        Self { left: sum, next: FIRST }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next.min(self.left);
        self.left -= pause;
        self.next = (self.next * 2).min(LONGEST);
        (!pause.is_zero()).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second_and_their_sum_is_limited() {
        let pauses: Vec<_> = Pauses::new(Duration::from_secs(5)).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000, 1000, 450]);
        assert_eq!(Pauses::new(Duration::ZERO).next(), None);
    }
}
