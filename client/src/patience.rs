//! How often, and how long in all, something that is not there yet is tried again.

use std::time::Duration;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// For a broker that is not there yet.
    pub for_broker: Duration,
    /// For the answer, everything included. Longer than a plugin may run, or its error never arrives.
    pub in_all: Duration,
}

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Pauses of 50 ms that double up to a second, and together last no longer than they may.
#[derive(Debug)]
pub(crate) struct Patience {
    left: Duration,
    next: Duration,
}

impl Patience {
    pub(crate) const fn new(in_all: Duration) -> Self {
        Self { left: in_all, next: FIRST }
    }
}

impl Iterator for Patience {
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
    fn pauses_double_up_to_a_second_and_add_up_to_the_whole() {
        let pauses: Vec<_> = Patience::new(Duration::from_secs(5)).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000, 1000, 450]);
        assert_eq!(Patience::new(Duration::ZERO).next(), None);
    }
}
