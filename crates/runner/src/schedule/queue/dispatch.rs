//! Starts the runs whose turn it is, and keeps the sets of issuers from which it picks.

use std::{mem, sync::Arc, time::Duration};

use super::{Queue, QueuedRun, RunAdmission};
use crate::schedule::{
    Urgency,
    blame::Blame,
    gate::{Class, Gate},
    lane::Party,
    slots::StartedRun,
};

impl Queue {
    /// Starts the runs that may start, and returns all answers since the last call.
    pub(in crate::schedule) fn dispatch(&mut self, now: Duration) -> Vec<(u64, RunAdmission)> {
        while let Some(issuer) = self.turns.due(now) {
            self.list(&issuer, now); // at a later time, or none
        }
        while self.slots.has_room() {
            if mem::take(&mut self.is_share_changed) {
                self.list_all(now);
            }
            let next = self.turns.next(self.slots.has_room_for_background());
            let Some((issuer, is_first)) = next else { break };
            self.start(&issuer, is_first, now);
        }
        while let Some(issuer) = self.refusing.pop_first() {
            self.refuse(&issuer, now);
        }
        mem::take(&mut self.answers)
    }

    /// Answers the callers that wait although `issuer` is paused. One of their runs is the next probe if one is due: no run of
    /// the broker could start, or it would have.
    fn refuse(&mut self, issuer: &Arc<str>, now: Duration) {
        let Some(line) = self.issuers.get(issuer) else { return };
        let Some(left) = line.pace.paused(now) else { return };
        for id in line.first.waited() {
            let Some(run) = self.waiting.get(&id).filter(|run| run.floor != Urgency::Forced) else {
                continue;
            };
            let Some(line) = self.issuers.get(issuer) else { return };
            let is_due = self.slots.has_room() && line.pace.gate(Class::First, now) == Gate::Open;
            let may_start = |peer: &u64| {
                let is_refused = self.slots.shares.refuses(Party::Peer(*peer)).is_some();
                is_due && !is_refused && line.pace.may_probe(run.source, *peer)
            };
            let peer = run.peers.keys().copied().find(may_start);
            if let Some(peer) = peer {
                self.begin(id, Class::First, Party::Peer(peer), now);
            } else if self.remove(id).is_some() {
                self.answers.push((id, RunAdmission::Throttled(left)));
            }
        }
        self.list(issuer, now);
    }

    /// When to dispatch again if nothing changes. `None`: no run waits for a time.
    pub(in crate::schedule) fn next_wake(&self) -> Option<Duration> {
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
        if let Some((id, party)) = line.take(class, turn, &self.slots.shares, now) {
            self.begin(id, class, party, now);
        } else {
            self.list(issuer, now);
        }
    }

    /// Starts a run in the turn of `party`, to whose share it counts.
    fn begin(&mut self, id: u64, class: Class, party: Party, now: Duration) {
        let Some(QueuedRun { issuer, source, .. }) = self.remove(id) else { return };
        let Some(line) = self.issuers.get_mut(&issuer) else { return };
        let run = line.pace.start(class, Blame::new(source, party), now);
        let has_share = self.slots.start(id, StartedRun { issuer: Arc::clone(&issuer), party, class, run });
        self.answers.push((id, RunAdmission::Start));
        self.list_more(&issuer, has_share, now);
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
