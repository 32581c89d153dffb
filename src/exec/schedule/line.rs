//! The queued runs of one issuer, and when they may start.

use std::time::Duration;

use super::{
    gate::{Class, Gate},
    lane::Lane,
    pace::Pace,
    share::Shares,
    turns::Listed,
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

    /// Finds its places among all issuers.
    pub(super) fn list(&mut self, shares: &Shares, now: Duration) {
        let turn = |class| self.turn(class, shares, now);
        let first = turn(Class::Forced).into_iter().chain(turn(Class::First)).min();
        let (rest, time) = (turn(Class::Background), self.time(shares, now));
        self.listed = Listed { first, rest, time };
    }

    /// The next turn of `class`, if a run of it may start.
    pub(super) fn turn(&self, class: Class, shares: &Shares, now: Duration) -> Option<u64> {
        self.lane(class).next(shares).filter(|_| self.pace.gate(class, now) == Gate::Open)
    }

    /// When the first gate opens for which a run is queued.
    fn time(&self, shares: &Shares, now: Duration) -> Option<Duration> {
        let classes = [Class::Forced, Class::First, Class::Background].into_iter();
        let waiting = classes.filter(|class| self.lane(*class).next(shares).is_some());
        let times = waiting.filter_map(|class| match self.pace.gate(class, now) {
            Gate::At(at, _) => Some(at),
            Gate::Open | Gate::Shut(_) => None,
        });
        times.min()
    }
}
