//! Picks the next run. Pure: `now` is the time since boot.

mod dispatch;

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Urgency,
    gate::{Cause, Gate},
    lane::Party,
    line::IssuerLine,
    pace::{Outcome, PaceChange},
    share::RunShares,
    slots::{Slots, StartedRun},
    turns::Turns,
};
use crate::plugin::Issuer;

/// The answer to a queued run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RunAdmission {
    /// It may start.
    Start,
    /// Its issuer is paused for this time.
    Throttled(Duration),
}

/// The queued and the started runs. Each operation takes O(log n) for each run that it answers.
#[derive(Debug)]
pub(super) struct Queue {
    slots: Slots,
    waiting: HashMap<u64, QueuedRun>,
    issuers: HashMap<Arc<str>, IssuerLine>,
    /// The limits of the newest configuration. A provider that has not changed may name earlier ones.
    limits: HashMap<Arc<str>, Arc<Issuer>>,
    turns: Turns,
    answers: Vec<(u64, RunAdmission)>,
    /// Numbers runs and turns.
    next: u64,
}

#[derive(Debug)]
struct QueuedRun {
    provider: Arc<str>,
    issuer: Arc<str>,
    urgency: Urgency,
}

impl Queue {
    /// A queue for `runs` runs at a time, at least one.
    pub(super) fn new(runs: usize) -> Self {
        Self {
            slots: Slots::new(runs),
            waiting: HashMap::new(),
            issuers: HashMap::new(),
            limits: HashMap::new(),
            turns: Turns::default(),
            answers: Vec::new(),
            next: 0,
        }
    }

    /// Sets the shares of processes and uids.
    pub(super) fn set_shares(&mut self, limits: RunShares, now: Duration) {
        self.slots.shares.limits = limits;
        self.list_all(now);
    }

    /// Adds a run and returns its number.
    pub(super) fn enter(
        &mut self,
        provider: &Arc<str>,
        issuer: &Issuer,
        urgency: Urgency,
        now: Duration,
    ) -> u64 {
        let id = self.number();
        let limits = self.limits.get(&issuer.name).map_or(issuer, |limits| limits);
        self.issuers.entry(Arc::clone(&issuer.name)).or_insert_with(|| IssuerLine::new(limits));
        let (provider, issuer) = (Arc::clone(provider), Arc::clone(&issuer.name));
        self.insert(id, QueuedRun { provider, issuer, urgency }, now);
        id
    }

    /// Sets the limits of a newer configuration. Runs that have started go on.
    pub(super) fn set_limits(
        &mut self,
        runs: usize,
        issuers: impl IntoIterator<Item = Arc<Issuer>>,
        now: Duration,
    ) {
        self.slots.runs = runs.max(1);
        self.limits = issuers.into_iter().map(|issuer| (Arc::clone(&issuer.name), issuer)).collect();
        let known: Vec<_> = self.issuers.keys().cloned().collect();
        for name in known {
            if let (Some(line), Some(limits)) = (self.issuers.get_mut(&name), self.limits.get(&name)) {
                line.pace.set_limits(limits);
                self.list(&name, now);
            }
        }
    }

    /// Removes a run that has not started.
    pub(super) fn leave(&mut self, id: u64, now: Duration) {
        if let Some(waiting) = self.remove(id) {
            self.list(&waiting.issuer, now);
        }
    }

    /// Changes the class of a run that has not started.
    pub(super) fn set_urgency(&mut self, id: u64, urgency: Urgency, now: Duration) {
        if self.waiting.get(&id).is_some_and(|waiting| waiting.urgency != urgency)
            && let Some(waiting) = self.remove(id)
        {
            self.insert(id, QueuedRun { urgency, ..waiting }, now);
        }
    }

    /// Sets how many runs may wait for a person at a time.
    pub(super) fn set_interactive(&mut self, runs: usize) {
        self.slots.interactive = runs;
    }

    /// Counts a started run among those that wait for a person, and returns whether there is room for it.
    pub(super) fn step_aside(&mut self, id: u64, now: Duration) -> bool {
        let Some((started, had_share)) = self.slots.step_aside(id) else { return false };
        let issuer = Arc::clone(&started.issuer);
        if let Some(line) = self.issuers.get_mut(&issuer) {
            line.pace.step_aside(&mut started.run);
        }
        self.list_more(&issuer, had_share, now);
        true
    }

    /// Notes the end of a started run. `u` is uniform in [0, 1).
    pub(super) fn finish(
        &mut self,
        id: u64,
        outcome: Outcome,
        u: f64,
        now: Duration,
    ) -> Option<(Arc<str>, PaceChange)> {
        let (StartedRun { issuer, run, .. }, had_share) = self.slots.finish(id)?;
        let line = self.issuers.get_mut(&issuer)?;
        let change = line.pace.finish(run, outcome, u, now);
        if let Some(left) = line.pace.paused(now).filter(|_| change.is_some()) {
            for id in line.first.take_waited() {
                self.waiting.remove(&id);
                self.answers.push((id, RunAdmission::Throttled(left)));
            }
        }
        self.list_more(&issuer, had_share, now);
        change.map(|change| (issuer, change))
    }

    /// How long the pause of `issuer` still lasts.
    pub(super) fn paused(&self, issuer: &str, now: Duration) -> Option<Duration> {
        self.issuers.get(issuer)?.pace.paused(now)
    }

    /// Why a queued run waits, and the number of other queued runs of its provider and class.
    pub(super) fn waits_for(&self, id: u64, now: Duration) -> Option<(Cause, usize)> {
        let QueuedRun { provider, issuer, urgency } = self.waiting.get(&id)?;
        let line = self.issuers.get(issuer)?;
        let class = urgency.class();
        let cause = match line.pace.gate(class, now) {
            Gate::Open => {
                let share = self.slots.shares.refuses(urgency.party()).filter(|_| self.slots.has_room());
                share.unwrap_or(Cause::Slots { runs: self.slots.runs })
            }
            Gate::At(_, cause) | Gate::Shut(cause) => cause,
        };
        Some((cause, line.lane(class).waiting(provider).saturating_sub(1)))
    }

    fn insert(&mut self, id: u64, waiting: QueuedRun, now: Duration) {
        let turn = self.number();
        let issuer = Arc::clone(&waiting.issuer);
        let Some(line) = self.issuers.get_mut(&issuer) else { return };
        let party = waiting.urgency.party();
        match line.pace.paused(now) {
            Some(left) if party != Party::Broker => self.answers.push((id, RunAdmission::Throttled(left))),
            _ => {
                line.lane_mut(waiting.urgency.class()).insert(&waiting.provider, party, id, turn);
                self.waiting.insert(id, waiting);
            }
        }
        self.list(&issuer, now);
    }

    fn remove(&mut self, id: u64) -> Option<QueuedRun> {
        let waiting = self.waiting.remove(&id)?;
        let lane = self.issuers.get_mut(&waiting.issuer)?.lane_mut(waiting.urgency.class());
        lane.remove(&waiting.provider, waiting.urgency.party(), id);
        Some(waiting)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests;
