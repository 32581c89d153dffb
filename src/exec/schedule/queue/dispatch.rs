//! Starts the runs whose turn it is, and keeps the sets of issuers from which it picks.

use std::{sync::Arc, time::Duration};

use super::{Queue, RunAdmission};
use crate::exec::schedule::{gate::Class, lane::Party, slots::StartedRun};

impl Queue {
    /// Starts the runs that may start, and returns all answers since the last call.
    pub(in crate::exec::schedule) fn dispatch(&mut self, now: Duration) -> Vec<(u64, RunAdmission)> {
        while let Some(issuer) = self.turns.due(now) {
            self.list(&issuer, now); // at a later time, or none
        }
        while self.slots.has_room()
            && let Some((issuer, is_first)) = self.turns.next(self.slots.has_room_for_background())
        {
            self.start(&issuer, is_first, now);
        }
        std::mem::take(&mut self.answers)
    }

    /// When to dispatch again if nothing changes. `None`: no run waits for a time.
    pub(in crate::exec::schedule) fn next_wake(&self) -> Option<Duration> {
        self.turns.next_time()
    }

    fn start(&mut self, issuer: &Arc<str>, is_first: bool, now: Duration) {
        let turn = self.number();
        let Some(line) = self.issuers.get_mut(issuer) else { return };
        let class = match is_first {
            true if line.turn(Class::Forced, &self.slots.shares, now) == line.listed.first => Class::Forced,
            true => Class::First,
            false => Class::Background,
        };
        let mut has_share = false;
        if let Some(id) = line.lane_mut(class).take(turn, &self.slots.shares) {
            let run = line.pace.start(class, now);
            let party = self.waiting.remove(&id).map_or(Party::Broker, |waiting| waiting.urgency.party());
            has_share = self.slots.start(id, StartedRun { issuer: Arc::clone(issuer), party, class, run });
            self.answers.push((id, RunAdmission::Start));
        }
        self.list_more(issuer, has_share, now);
    }

    /// Updates the sets after a run of `issuer` has started or ended. `all`: its party got its share, or has less again.
    pub(super) fn list_more(&mut self, issuer: &Arc<str>, all: bool, now: Duration) {
        if all {
            self.list_all(now);
        } else {
            self.list(issuer, now);
        }
    }

    /// Updates the sets after a party got its share, or has less again: it may be queued at any issuer.
    pub(super) fn list_all(&mut self, now: Duration) {
        let issuers: Vec<_> = self.issuers.keys().cloned().collect();
        for issuer in issuers {
            self.list(&issuer, now);
        }
    }

    /// Updates the sets after a change of an issuer.
    pub(super) fn list(&mut self, issuer: &Arc<str>, now: Duration) {
        let Some(line) = self.issuers.get_mut(issuer) else { return };
        let before = line.listed;
        line.list(&self.slots.shares, now);
        self.turns.list(issuer, before, line.listed);
    }
}
