//! Picks the next run. Pure: `now` is the time since boot.

mod dispatch;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    RunSource, Urgency,
    gate::{Cause, Class, Gate},
    lane::Party,
    line::IssuerLine,
    pace::{Outcome, PaceChange},
    share::RunShares,
    slots::{Slots, StartedRun},
    turns::Turns,
};
use credbroker_plugin::Issuer;

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
    /// The issuers whose waiting callers may have to be refused.
    refusing: BTreeSet<Arc<str>>,
    /// Whether a uid may have more or fewer runs than when its issuers were listed.
    is_share_changed: bool,
    /// Numbers runs and turns.
    next: u64,
}

#[derive(Debug)]
struct QueuedRun {
    provider: Arc<str>,
    issuer: Arc<str>,
    source: RunSource,
    /// Its urgency while no caller waits. [`Urgency::Waited`] before the last caller leaves: it is not queued for the broker.
    floor: Urgency,
    /// The processes whose callers wait, and how many callers of each.
    peers: BTreeMap<u64, usize>,
}

impl QueuedRun {
    /// The lanes in which it is queued, and for whom. It starts in the first turn that comes in any of them, so that a
    /// caller that joins delays no other.
    fn places(&self) -> impl Iterator<Item = (Class, Party)> {
        let own = self.floor.class().map(|class| (class, self.source.party()));
        own.into_iter().chain(self.peers.keys().map(|peer| (Class::First, Party::Peer(*peer))))
    }
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
            refusing: BTreeSet::new(),
            is_share_changed: false,
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
        (urgency, source): (Urgency, RunSource),
        now: Duration,
    ) -> u64 {
        let id = self.number();
        let limits = self.limits.get(&issuer.name).map_or(issuer, |limits| limits);
        self.issuers.entry(Arc::clone(&issuer.name)).or_insert_with(|| IssuerLine::new(limits));
        let (provider, issuer) = (Arc::clone(provider), Arc::clone(&issuer.name));
        let peers = match urgency {
            Urgency::Waited { peer } => BTreeMap::from([(peer, 1)]),
            Urgency::Background | Urgency::Urgent | Urgency::Forced => BTreeMap::new(),
        };
        let run = QueuedRun { provider, issuer: Arc::clone(&issuer), source, floor: urgency, peers };
        let places: Vec<_> = run.places().collect();
        self.waiting.insert(id, run);
        for (class, party) in places {
            self.put(id, class, party);
        }
        self.refusing.insert(Arc::clone(&issuer));
        self.list(&issuer, now);
        id
    }

    /// Sets the limits of a newer configuration. Runs that have started go on.
    pub(super) fn set_limits(
        &mut self,
        runs: usize,
        issuers: impl IntoIterator<Item = Arc<Issuer>>,
        now: Duration,
    ) {
        self.slots.shares.runs = runs.max(1);
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

    /// Queues a run that has not started for one more caller, in `peer`.
    ///
    /// # Errors
    ///
    /// Its issuer is paused for this time. The run stays as it is.
    pub(super) fn join(&mut self, id: u64, peer: u64, now: Duration) -> Result<(), Duration> {
        let Some(run) = self.waiting.get_mut(&id) else { return Ok(()) };
        let line = self.issuers.get(&run.issuer);
        let paused = line.and_then(|line| line.pace.paused(now));
        if let Some(left) = paused.filter(|_| run.floor != Urgency::Forced) {
            return Err(left);
        }
        let callers = run.peers.entry(peer).or_default();
        *callers += 1;
        if *callers == 1 {
            let issuer = Arc::clone(&run.issuer);
            self.put(id, Class::First, Party::Peer(peer));
            self.list(&issuer, now);
        }
        Ok(())
    }

    /// Takes a caller in `peer` from those that a run is queued for.
    pub(super) fn part(&mut self, id: u64, peer: u64, now: Duration) {
        let Some(run) = self.waiting.get_mut(&id) else { return };
        let Some(callers) = run.peers.get_mut(&peer) else { return };
        *callers -= 1;
        if *callers > 0 {
            return;
        }
        run.peers.remove(&peer);
        let (provider, issuer) = (Arc::clone(&run.provider), Arc::clone(&run.issuer));
        let is_over = run.peers.is_empty() && matches!(run.floor, Urgency::Waited { .. });
        if let Some(line) = self.issuers.get_mut(&issuer) {
            line.first.remove(&provider, Party::Peer(peer), id);
        }
        self.is_share_changed |= self.slots.shares.left(Party::Peer(peer));
        if is_over {
            self.set_floor(id, Urgency::Background, now);
        } else {
            self.list(&issuer, now);
        }
    }

    /// Changes the urgency without callers of a run that has not started. A run that only callers need keeps to them.
    pub(super) fn set_floor(&mut self, id: u64, floor: Urgency, now: Duration) {
        let Some(run) = self.waiting.get_mut(&id) else { return };
        let (was, class) = (std::mem::replace(&mut run.floor, floor).class(), floor.class());
        if was == class {
            return;
        }
        let (provider, issuer) = (Arc::clone(&run.provider), Arc::clone(&run.issuer));
        let party = run.source.party();
        if let Some((class, line)) = was.zip(self.issuers.get_mut(&issuer)) {
            line.lane_mut(class).remove(&provider, party, id);
        }
        if let Some(class) = class {
            self.put(id, class, party);
        }
        self.list(&issuer, now);
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
        if change.is_some() {
            self.refusing.insert(Arc::clone(&issuer));
        }
        self.list_more(&issuer, had_share, now);
        change.map(|change| (issuer, change))
    }

    /// How long the pause of `issuer` still lasts.
    pub(super) fn paused(&self, issuer: &str, now: Duration) -> Option<Duration> {
        self.issuers.get(issuer)?.pace.paused(now)
    }

    /// Why a queued run waits, for the answer to a caller in `peer`, and the number of other queued runs of its provider and class.
    pub(super) fn waits_for(&self, id: u64, peer: Option<u64>, now: Duration) -> Option<(Cause, usize)> {
        let run = self.waiting.get(&id)?;
        let line = self.issuers.get(&run.issuer)?;
        let class = match run.floor.class() {
            Some(Class::Forced) => Class::Forced,
            Some(Class::Background) if run.peers.is_empty() => Class::Background,
            _ => Class::First,
        };
        let cause = match line.pace.gate(class, now) {
            Gate::Open => self.refusal(run, line, class, peer, now),
            Gate::At(_, cause) | Gate::Shut(cause) => cause,
        };
        Some((cause, line.lane(class).waiting(&run.provider).saturating_sub(1)))
    }

    /// Why no party of a run starts it, although the gate of its class is open.
    fn refusal(
        &self,
        run: &QueuedRun,
        line: &IssuerLine,
        class: Class,
        peer: Option<u64>,
        now: Duration,
    ) -> Cause {
        let slots = Cause::Slots { runs: self.slots.shares.runs };
        if !self.slots.has_room() {
            return slots;
        }
        let is_held_back = |party| class != Class::Forced && !line.pace.admits(party, now);
        let mut first = None;
        for (_, party) in run.places().filter(|(of, _)| *of == class) {
            let refused = match self.slots.shares.refuses(party) {
                None if is_held_back(party) => Some(match line.pace.paused(now) {
                    Some(left) => Cause::Paused { left },
                    None => Cause::Probe,
                }),
                refused => refused,
            };
            let Some(refused) = refused else { return slots };
            if first.is_none() || peer.map(Party::Peer) == Some(party) {
                first = Some(refused);
            }
        }
        first.unwrap_or(slots)
    }

    /// Queues a run for `party`.
    fn put(&mut self, id: u64, class: Class, party: Party) {
        let turn = self.number();
        let Some(run) = self.waiting.get(&id) else { return };
        if let Some(line) = self.issuers.get_mut(&run.issuer) {
            line.lane_mut(class).insert(&run.provider, party, id, turn);
        }
        self.is_share_changed |= self.slots.shares.waits(party);
    }

    fn remove(&mut self, id: u64) -> Option<QueuedRun> {
        let run = self.waiting.remove(&id)?;
        let line = self.issuers.get_mut(&run.issuer)?;
        for (class, party) in run.places() {
            line.lane_mut(class).remove(&run.provider, party, id);
            self.is_share_changed |= self.slots.shares.left(party);
        }
        Some(run)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests;
