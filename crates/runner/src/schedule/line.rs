//! The queued runs of one issuer, and when they may start.

use std::time::Duration;

use super::{
    gate::{Class, Gate},
    lane::{Lane, Party},
    pace::Pace,
    share::Shares,
    turns::Listed,
};
use credbroker_plugin::Issuer;

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
        let next = self.lane(class).next(|party| self.may_start(class, party, shares, now));
        next.filter(|_| self.pace.gate(class, now) == Gate::Open)
    }

    /// Takes the next run of `class`. `turn` is larger than any turn so far.
    pub(super) fn take(
        &mut self,
        class: Class,
        turn: u64,
        shares: &Shares,
        now: Duration,
    ) -> Option<(u64, Party)> {
        let Self { pace, forced, first, background, .. } = self;
        let lane = match class {
            Class::Forced => forced,
            Class::First => first,
            Class::Background => background,
        };
        lane.take(turn, |party| may_start(pace, class, party, shares, now))
    }

    fn may_start(&self, class: Class, party: Party, shares: &Shares, now: Duration) -> bool {
        may_start(&self.pace, class, party, shares, now)
    }

    /// When the first gate opens for which a run is queued.
    fn time(&self, shares: &Shares, now: Duration) -> Option<Duration> {
        let times = [Class::Forced, Class::First, Class::Background].into_iter().filter_map(|class| {
            self.lane(class).next(|party| shares.refuses(party).is_none())?;
            match self.pace.gate(class, now) {
                Gate::At(at, _) => Some(at),
                Gate::Open => self.pace.readmits_at().filter(|at| now < *at),
                Gate::Shut(_) => None,
            }
        });
        times.min()
    }
}

/// Whether `party` may start a run of `class`, if the gate is open.
fn may_start(pace: &Pace, class: Class, party: Party, shares: &Shares, now: Duration) -> bool {
    shares.refuses(party).is_none() && (class == Class::Forced || pace.admits(party, now))
}
