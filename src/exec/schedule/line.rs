//! The queued runs of one issuer, and when they may start.

use std::time::Duration;

use super::{
    lane::Lane,
    pace::{Class, Gate, Pace},
    share::Shares,
};
use crate::plugin::Issuer;

/// The queued runs of one issuer.
#[derive(Debug)]
pub(super) struct IssuerLine {
    pub(super) pace: Pace,
    forced: Lane,
    pub(super) first: Lane,
    background: Lane,
    pub(super) listed: Listed,
}

/// The positions of the issuer in the sets of the queue.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) first: Option<u64>,
    pub(super) rest: Option<u64>,
    pub(super) time: Option<Duration>,
}

impl IssuerLine {
    pub(super) fn new(issuer: &Issuer) -> Self {
        let (forced, first, background) = (Lane::default(), Lane::default(), Lane::default());
        Self { pace: Pace::new(issuer), forced, first, background, listed: Listed::default() }
    }

    pub(super) fn lane(&self, class: Class) -> &Lane {
        match class {
            Class::Forced => &self.forced,
            Class::First => &self.first,
            Class::Background => &self.background,
        }
    }

    pub(super) fn lane_mut(&mut self, class: Class) -> &mut Lane {
        match class {
            Class::Forced => &mut self.forced,
            Class::First => &mut self.first,
            Class::Background => &mut self.background,
        }
    }

    /// The next turn of `class`, if a run of it may start.
    pub(super) fn turn(&self, class: Class, shares: &Shares, now: Duration) -> Option<u64> {
        self.lane(class).next(shares).filter(|_| self.pace.gate(class, now) == Gate::Open)
    }

    /// When the first gate opens for which a run is queued.
    pub(super) fn time(&self, shares: &Shares, now: Duration) -> Option<Duration> {
        let classes = [Class::Forced, Class::First, Class::Background].into_iter();
        let waiting = classes.filter(|class| self.lane(*class).next(shares).is_some());
        let times = waiting.filter_map(|class| match self.pace.gate(class, now) {
            Gate::At(at, _) => Some(at),
            Gate::Open | Gate::Shut(_) => None,
        });
        times.min()
    }
}
