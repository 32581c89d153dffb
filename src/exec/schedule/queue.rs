//! Picks the next run. Pure: `now` is the time since boot.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    Urgency,
    lane::Party,
    line::{IssuerLine, Listed},
    pace::{Cause, Class, Gate, Outcome, PaceChange, RunRecord},
    share::{RunShares, Shares},
};
use crate::plugin::Issuer;

/// The answer to a queued run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Admission {
    /// It may start.
    Start,
    /// Its issuer is paused for this time.
    Throttled(Duration),
}

/// The queued and the started runs. Each operation takes O(log n) for each run that it answers.
#[derive(Debug)]
pub(super) struct Queue {
    runs: usize,
    /// The runs that may wait for a person at a time.
    interactive: usize,
    shares: Shares,
    waiting: HashMap<u64, QueuedRun>,
    started: HashMap<u64, StartedRun>,
    /// The started runs that wait for a person, which do not count among the others.
    aside: HashMap<u64, StartedRun>,
    /// The number of started background runs.
    background: usize,
    issuers: HashMap<Arc<str>, IssuerLine>,
    /// The limits of the newest configuration. A provider that has not changed may name earlier ones.
    limits: HashMap<Arc<str>, Arc<Issuer>>,
    /// The issuers that may start a first-class run now, by the number of their next turn.
    first: BTreeSet<(u64, Arc<str>)>,
    /// The same for background runs.
    rest: BTreeSet<(u64, Arc<str>)>,
    /// When to check issuers again whose runs wait for a time.
    times: BTreeSet<(Duration, Arc<str>)>,
    answers: Vec<(u64, Admission)>,
    /// Numbers runs and turns.
    next: u64,
}

#[derive(Debug)]
struct QueuedRun {
    provider: Arc<str>,
    issuer: Arc<str>,
    urgency: Urgency,
}

#[derive(Debug)]
struct StartedRun {
    issuer: Arc<str>,
    party: Party,
    class: Class,
    run: RunRecord,
}

impl Queue {
    /// A queue for `runs` runs at a time, at least one.
    pub(super) fn new(runs: usize) -> Self {
        Self {
            runs: runs.max(1),
            interactive: 0,
            shares: Shares::new(RunShares { per_uid: usize::MAX, per_process: usize::MAX }),
            waiting: HashMap::new(),
            started: HashMap::new(),
            aside: HashMap::new(),
            background: 0,
            issuers: HashMap::new(),
            limits: HashMap::new(),
            first: BTreeSet::new(),
            rest: BTreeSet::new(),
            times: BTreeSet::new(),
            answers: Vec::new(),
            next: 0,
        }
    }

    /// Sets the shares of processes and uids.
    pub(super) fn set_shares(&mut self, limits: RunShares, now: Duration) {
        self.shares.limits = limits;
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
        self.runs = runs.max(1);
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
        self.interactive = runs;
    }

    /// Counts a started run among those that wait for a person, and returns whether there is room for it.
    pub(super) fn step_aside(&mut self, id: u64, now: Duration) -> bool {
        if self.aside.len() >= self.interactive {
            return false;
        }
        let Some(mut started) = self.started.remove(&id) else { return false };
        let had_share = self.leave_slot(&started);
        let issuer = Arc::clone(&started.issuer);
        if let Some(line) = self.issuers.get_mut(&issuer) {
            line.pace.step_aside(&mut started.run);
        }
        self.aside.insert(id, started);
        self.list_more(&issuer, had_share, now);
        true
    }

    /// Frees the slot of a started run. Returns whether its party had its share.
    fn leave_slot(&mut self, started: &StartedRun) -> bool {
        self.background -= usize::from(started.class == Class::Background);
        self.shares.finish(started.party)
    }

    /// Notes the end of a started run. `u` is uniform in [0, 1).
    pub(super) fn finish(
        &mut self,
        id: u64,
        outcome: Outcome,
        u: f64,
        now: Duration,
    ) -> Option<(Arc<str>, PaceChange)> {
        let (started, had_share) = match self.started.remove(&id) {
            Some(started) => {
                let had_share = self.leave_slot(&started);
                (started, had_share)
            }
            None => (self.aside.remove(&id)?, false),
        };
        let StartedRun { issuer, run, .. } = started;
        let line = self.issuers.get_mut(&issuer)?;
        let change = line.pace.finish(run, outcome, u, now);
        if let Some(left) = line.pace.paused(now).filter(|_| change.is_some()) {
            for id in line.first.take_waited() {
                self.waiting.remove(&id);
                self.answers.push((id, Admission::Throttled(left)));
            }
        }
        self.list_more(&issuer, had_share, now);
        change.map(|change| (issuer, change))
    }

    /// Starts the runs that may start, and returns all answers since the last call.
    pub(super) fn dispatch(&mut self, now: Duration) -> Vec<(u64, Admission)> {
        while let Some((_, issuer)) = self.times.first().filter(|(at, _)| *at <= now) {
            let issuer = Arc::clone(issuer);
            self.list(&issuer, now); // at a later time, or none
        }
        while self.started.len() < self.runs {
            // If there are two slots or more, one is reserved for runs that a caller waits for.
            let has_idle_capacity = self.runs == 1 || self.background + 1 < self.runs;
            let (next, is_first) = match (self.first.first(), self.rest.first()) {
                (Some(next), _) => (next, true),
                (None, Some(next)) if has_idle_capacity => (next, false),
                _ => break,
            };
            let issuer = Arc::clone(&next.1);
            self.start(&issuer, is_first, now);
        }
        std::mem::take(&mut self.answers)
    }

    /// When to dispatch again if nothing changes. `None`: no run waits for a time.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.times.first().map(|(at, _)| *at)
    }

    /// How long the pause of `issuer` still lasts.
    pub(super) fn paused(&self, issuer: &str, now: Duration) -> Option<Duration> {
        self.issuers.get(issuer)?.pace.paused(now)
    }

    /// Why a queued run waits, and the number of other queued runs of its provider and class.
    pub(super) fn waits_for(&self, id: u64, now: Duration) -> Option<(Cause, usize)> {
        let QueuedRun { provider, issuer, urgency } = self.waiting.get(&id)?;
        let line = self.issuers.get(issuer)?;
        let class = class(*urgency);
        let cause = match line.pace.gate(class, now) {
            Gate::Open => {
                let share = self.shares.refuses(caller(*urgency)).filter(|_| self.started.len() < self.runs);
                share.unwrap_or(Cause::Slots { runs: self.runs })
            }
            Gate::At(_, cause) | Gate::Shut(cause) => cause,
        };
        Some((cause, line.lane(class).waiting(provider).saturating_sub(1)))
    }

    fn insert(&mut self, id: u64, waiting: QueuedRun, now: Duration) {
        let turn = self.number();
        let issuer = Arc::clone(&waiting.issuer);
        let Some(line) = self.issuers.get_mut(&issuer) else { return };
        let caller = caller(waiting.urgency);
        match line.pace.paused(now) {
            Some(left) if caller != Party::Broker => self.answers.push((id, Admission::Throttled(left))),
            _ => {
                line.lane_mut(class(waiting.urgency)).insert(&waiting.provider, caller, id, turn);
                self.waiting.insert(id, waiting);
            }
        }
        self.list(&issuer, now);
    }

    fn remove(&mut self, id: u64) -> Option<QueuedRun> {
        let waiting = self.waiting.remove(&id)?;
        let lane = self.issuers.get_mut(&waiting.issuer)?.lane_mut(class(waiting.urgency));
        lane.remove(&waiting.provider, caller(waiting.urgency), id);
        Some(waiting)
    }

    fn start(&mut self, issuer: &Arc<str>, is_first: bool, now: Duration) {
        let turn = self.number();
        let Some(line) = self.issuers.get_mut(issuer) else { return };
        let class = match is_first {
            true if line.turn(Class::Forced, &self.shares, now) == line.listed.first => Class::Forced,
            true => Class::First,
            false => Class::Background,
        };
        let mut has_share = false;
        if let Some(id) = line.lane_mut(class).take(turn, &self.shares) {
            let run = line.pace.start(class, now);
            let party = self.waiting.remove(&id).map_or(Party::Broker, |waiting| caller(waiting.urgency));
            has_share = self.shares.start(party);
            self.background += usize::from(class == Class::Background);
            self.started.insert(id, StartedRun { issuer: Arc::clone(issuer), party, class, run });
            self.answers.push((id, Admission::Start));
        }
        self.list_more(issuer, has_share, now);
    }

    /// Updates the sets after a run of `issuer` has started or ended. `all`: its party got its share, or has less again.
    fn list_more(&mut self, issuer: &Arc<str>, all: bool, now: Duration) {
        if all {
            self.list_all(now);
        } else {
            self.list(issuer, now);
        }
    }

    /// Updates the sets after a party got its share, or has less again: it may be queued at any issuer.
    fn list_all(&mut self, now: Duration) {
        let issuers: Vec<_> = self.issuers.keys().cloned().collect();
        for issuer in issuers {
            self.list(&issuer, now);
        }
    }

    /// Updates the sets after a change of an issuer.
    fn list(&mut self, issuer: &Arc<str>, now: Duration) {
        let Some(line) = self.issuers.get_mut(issuer) else { return };
        let shares = &self.shares;
        let (forced, first) = (line.turn(Class::Forced, shares, now), line.turn(Class::First, shares, now));
        let listed = Listed {
            first: forced.into_iter().chain(first).min(),
            rest: line.turn(Class::Background, shares, now),
            time: line.time(shares, now),
        };
        let before = std::mem::replace(&mut line.listed, listed);
        relist(&mut self.first, before.first, line.listed.first, issuer);
        relist(&mut self.rest, before.rest, line.listed.rest, issuer);
        relist(&mut self.times, before.time, line.listed.time, issuer);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn relist<T: Copy + Ord>(
    set: &mut BTreeSet<(T, Arc<str>)>,
    before: Option<T>,
    after: Option<T>,
    issuer: &Arc<str>,
) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        set.remove(&(before, Arc::clone(issuer)));
    }
    if let Some(after) = after {
        set.insert((after, Arc::clone(issuer)));
    }
}

fn class(urgency: Urgency) -> Class {
    match urgency {
        Urgency::Background => Class::Background,
        Urgency::Forced => Class::Forced,
        Urgency::Urgent | Urgency::Waited { .. } => Class::First,
    }
}

fn caller(urgency: Urgency) -> Party {
    match urgency {
        Urgency::Background | Urgency::Forced | Urgency::Urgent => Party::Broker,
        Urgency::Waited { peer } => Party::Peer(peer),
    }
}

#[cfg(test)]
mod tests;
