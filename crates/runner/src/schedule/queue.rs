//! Picks the next run. Pure: `now` is the time since boot.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
    time::Duration,
};

use super::{
    issuer::{Blame, Gate, Outcome, Pace, PaceChange, RunRecord},
    turns::{Cause, Class, Door, Group, Line, Party, RunSource, Shares, Urgency},
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

/// The queued and the started runs.
#[derive(Debug)]
pub(super) struct Queue {
    /// How many runs there may be at a time, and how many besides them that wait for a person.
    slots: usize,
    interactive: usize,
    waiting: HashMap<u64, QueuedRun>,
    /// The number of queued runs of each provider.
    providers: HashMap<Arc<str>, usize>,
    /// The queued runs that callers wait for, and urgent and forced ones. Background runs wait in another line.
    first: Line,
    background: Line,
    started: HashMap<u64, StartedRun>,
    /// The number of started runs that wait for a person, which do not count among the others.
    aside: usize,
    /// The number of other started background runs.
    background_runs: usize,
    shares: Shares,
    issuers: HashMap<Arc<str>, QueuedIssuer>,
    /// The limits of the newest configuration. A provider that has not changed may name earlier ones.
    limits: HashMap<Arc<str>, Arc<Issuer>>,
    answers: Vec<(u64, RunAdmission)>,
    /// The issuers whose waiting callers may have to be refused.
    refusing: BTreeSet<Arc<str>>,
    /// Numbers runs and turns.
    next: u64,
}

#[derive(Debug)]
struct QueuedIssuer {
    pace: Pace,
    /// The last turn in which a run of it started.
    turn: u64,
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

/// A started run.
#[derive(Debug)]
struct StartedRun {
    issuer: Arc<str>,
    /// In whose turn it started.
    party: Party,
    class: Class,
    record: RunRecord,
    is_aside: bool,
}

impl QueuedRun {
    /// In which class, and in whose turn, it starts without a caller; `None`: only callers need it.
    fn own_place(&self) -> Option<(Class, Party)> {
        let sender = self.source.uid();
        let of = |group| Party::Broker { group, sender };
        match self.floor {
            Urgency::Background => Some((Class::Background, of(sender))),
            Urgency::Forced => Some((Class::Forced, of(sender))),
            Urgency::Urgent { uid } => Some((Class::First, of(uid))),
            Urgency::Waited { .. } => None,
        }
    }

    /// The classes in which it is queued, and for whom. It starts in the first turn of any of them.
    fn places(&self) -> impl Iterator<Item = (Class, Party)> {
        let callers = self.peers.keys().map(|peer| (Class::First, Party::Peer(*peer)));
        self.own_place().into_iter().chain(callers)
    }
}

impl Queue {
    /// A queue for `runs` runs at a time, at least one.
    pub(super) fn new(runs: usize) -> Self {
        Self {
            slots: runs.max(1),
            interactive: 0,
            waiting: HashMap::new(),
            providers: HashMap::new(),
            first: Line::default(),
            background: Line::default(),
            started: HashMap::new(),
            aside: 0,
            background_runs: 0,
            shares: Shares::default(),
            issuers: HashMap::new(),
            limits: HashMap::new(),
            answers: Vec::new(),
            refusing: BTreeSet::new(),
            next: 0,
        }
    }

    /// Adds a run and returns its number.
    pub(super) fn enter(
        &mut self,
        provider: &Arc<str>,
        issuer: &Issuer,
        (urgency, source): (Urgency, RunSource),
    ) -> u64 {
        let id = self.number();
        let limits = self.limits.get(&issuer.name).map_or(issuer, |limits| limits);
        let entry = self.issuers.entry(Arc::clone(&issuer.name));
        entry.or_insert_with(|| QueuedIssuer { pace: Pace::new(limits), turn: 0 });
        let (provider, issuer) = (Arc::clone(provider), Arc::clone(&issuer.name));
        let peers = match urgency {
            Urgency::Waited { peer } => BTreeMap::from([(peer, 1)]),
            Urgency::Background | Urgency::Urgent { .. } | Urgency::Forced => BTreeMap::new(),
        };
        *self.providers.entry(Arc::clone(&provider)).or_default() += 1;
        self.refusing.insert(Arc::clone(&issuer));
        let run = QueuedRun { provider, issuer, source, floor: urgency, peers };
        for (class, party) in run.places() {
            self.put(id, (class, Arc::clone(&run.issuer)), party);
        }
        self.waiting.insert(id, run);
        id
    }

    /// Sets the limits of a newer configuration. Runs that have started go on.
    pub(super) fn set_limits(&mut self, runs: usize, issuers: impl IntoIterator<Item = Arc<Issuer>>) {
        self.slots = runs.max(1);
        self.limits = issuers.into_iter().map(|issuer| (Arc::clone(&issuer.name), issuer)).collect();
        for (name, issuer) in &mut self.issuers {
            if let Some(limits) = self.limits.get(name) {
                issuer.pace.set_limits(limits);
            }
        }
    }

    /// Sets how many runs may wait for a person at a time.
    pub(super) fn set_interactive(&mut self, runs: usize) {
        self.interactive = runs;
    }

    /// Removes a run that has not started.
    pub(super) fn leave(&mut self, id: u64) {
        self.remove(id);
    }

    /// Queues a run that has not started for one more caller, in `peer`.
    ///
    /// # Errors
    ///
    /// Its issuer is paused for this time. The run stays as it is.
    pub(super) fn join(&mut self, id: u64, peer: u64, now: Duration) -> Result<(), Duration> {
        let Some(run) = self.waiting.get_mut(&id) else { return Ok(()) };
        let paused = self.issuers.get(&run.issuer).and_then(|issuer| issuer.pace.paused(now));
        if let Some(left) = paused.filter(|_| run.floor != Urgency::Forced) {
            return Err(left);
        }
        let callers = run.peers.entry(peer).or_default();
        *callers += 1;
        if *callers == 1 {
            let door = (Class::First, Arc::clone(&run.issuer));
            self.put(id, door, Party::Peer(peer));
        }
        Ok(())
    }

    /// Takes a caller in `peer` from those that a run is queued for.
    pub(super) fn part(&mut self, id: u64, peer: u64) {
        let Some(run) = self.waiting.get_mut(&id) else { return };
        let Some(callers) = run.peers.get_mut(&peer) else { return };
        *callers -= 1;
        if *callers > 0 {
            return;
        }
        run.peers.remove(&peer);
        let is_over = run.peers.is_empty() && matches!(run.floor, Urgency::Waited { .. });
        self.first.remove(&(Class::First, Arc::clone(&run.issuer)), Party::Peer(peer), id);
        if is_over {
            self.set_floor(id, Urgency::Background);
        }
    }

    /// Changes the urgency without callers of a run that has not started. A run that only callers need keeps to them.
    pub(super) fn set_floor(&mut self, id: u64, floor: Urgency) {
        let Some(run) = self.waiting.get_mut(&id) else { return };
        let was = run.own_place();
        run.floor = floor;
        let (is, issuer) = (run.own_place(), Arc::clone(&run.issuer));
        if was == is {
            return;
        }
        if let Some((class, party)) = was {
            self.line(class).remove(&(class, Arc::clone(&issuer)), party, id);
        }
        if let Some((class, party)) = is {
            self.put(id, (class, issuer), party);
        }
    }

    /// Counts a started run among those that wait for a person, and returns whether there is room for it.
    pub(super) fn step_aside(&mut self, id: u64) -> bool {
        let room = self.interactive.saturating_sub(self.aside);
        let Some(started) = self.started.get_mut(&id).filter(|run| !run.is_aside && room > 0) else {
            return false;
        };
        started.is_aside = true;
        if let Some(issuer) = self.issuers.get_mut(&started.issuer) {
            issuer.pace.step_aside(&mut started.record);
        }
        self.aside += 1;
        let (class, party) = (started.class, started.party);
        self.free(class, party);
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
        let StartedRun { issuer, party, class, record, is_aside } = self.started.remove(&id)?;
        if is_aside {
            self.aside -= 1;
        } else {
            self.free(class, party);
        }
        let change = self.issuers.get_mut(&issuer)?.pace.finish(record, outcome, u, now)?;
        self.refusing.insert(Arc::clone(&issuer));
        Some((issuer, change))
    }

    /// How long the pause of `issuer` still lasts.
    pub(super) fn paused(&self, issuer: &str, now: Duration) -> Option<Duration> {
        self.issuers.get(issuer)?.pace.paused(now)
    }

    /// Starts the runs that may start, and returns all answers since the last call.
    pub(super) fn dispatch(&mut self, now: Duration) -> Vec<(u64, RunAdmission)> {
        loop {
            while let Some((id, party, (class, _))) = self.next_run(now) {
                let turn = self.number();
                self.line(class).pass(party, turn);
                self.begin(id, class, party, now);
            }
            let Some(issuer) = self.refusing.pop_first() else { return mem::take(&mut self.answers) };
            self.refuse(&issuer, now);
        }
    }

    /// When to dispatch again if nothing changes. `None`: no run waits for a time.
    pub(super) fn next_wake(&self, now: Duration) -> Option<Duration> {
        let opens_at = |(_, (class, issuer)): (_, &Door)| self.pace(issuer)?.opens_at(*class, now);
        let lines = self.open_lines();
        lines.flat_map(|line| line.doors().filter_map(opens_at)).min()
    }

    /// Why a queued run waits, for the answer to a caller in `peer`, and the number of other queued runs of its provider.
    pub(super) fn waits_for(&self, id: u64, peer: Option<u64>, now: Duration) -> Option<(Cause, usize)> {
        let run = self.waiting.get(&id)?;
        let class = match run.own_place() {
            Some((Class::Forced, _)) => Class::Forced,
            Some((Class::Background, _)) if run.peers.is_empty() => Class::Background,
            _ => Class::First,
        };
        let pace = self.pace(&run.issuer)?;
        let cause = match pace.gate(class, now) {
            Gate::Open => self.refusal(run, class, peer, now),
            Gate::At(_, cause) | Gate::Shut(cause) => cause,
        };
        let others = self.providers.get(&run.provider).map_or(0, |runs| runs.saturating_sub(1));
        Some((cause, others))
    }

    /// Why no party of a run starts it, although the gate of its class is open.
    fn refusal(&self, run: &QueuedRun, class: Class, peer: Option<u64>, now: Duration) -> Cause {
        let slots = Cause::Slots { runs: self.slots };
        if !self.has_room() {
            return slots;
        }
        let paused = self.pace(&run.issuer).and_then(|pace| pace.paused(now));
        let door = (class, Arc::clone(&run.issuer));
        let mut first = None;
        for (_, party) in run.places().filter(|(of, _)| *of == class) {
            let refused = match self.refuse_share(class, party) {
                None if self.admits(&door, party, now) => return slots,
                None => paused.map_or(Cause::Probe, |left| Cause::Paused { left }),
                Some(share) => share,
            };
            if first.is_none() || peer.map(Party::Peer) == Some(party) {
                first = Some(refused);
            }
        }
        first.unwrap_or(slots)
    }

    /// The next run that may start, in whose turn, and at which door.
    fn next_run(&self, now: Duration) -> Option<(u64, Party, Door)> {
        let last = |(_, issuer): &Door| self.issuers.get(issuer).map_or(0, |issuer| issuer.turn);
        let may =
            |door: &Door, party| self.refuse_party(door.0, party).is_none() && self.admits(door, party, now);
        let is_open = |(class, issuer): &Door, group| {
            let is_open = self.pace(issuer).is_some_and(|pace| pace.gate(*class, now) == Gate::Open);
            is_open && self.refuse_group(*class, group).is_none()
        };
        self.open_lines().find_map(|line| line.next(is_open, may, last))
    }

    /// The lines of which a run may start. Background runs come last, and leave the last slot to others if there are two.
    fn open_lines(&self) -> impl Iterator<Item = &Line> {
        let has_room = self.slots == 1 || self.background_runs + 1 < self.slots;
        let lines = [(&self.first, true), (&self.background, has_room)];
        let has_room = self.has_room();
        lines.into_iter().filter(move |(_, may)| *may && has_room).map(|(line, _)| line)
    }

    fn has_room(&self) -> bool {
        self.started.len() - self.aside < self.slots
    }

    /// Why no run of `party` starts now; `None`: it has less than its share. Background runs have none.
    fn refuse_share(&self, class: Class, party: Party) -> Option<Cause> {
        self.refuse_group(class, party.group()).or_else(|| self.refuse_party(class, party))
    }

    fn refuse_group(&self, class: Class, group: Group) -> Option<Cause> {
        let refused = || self.shares.refuse_group(group, self.slots, &self.first);
        (class != Class::Background).then(refused).flatten()
    }

    fn refuse_party(&self, class: Class, party: Party) -> Option<Cause> {
        let refused = || self.shares.refuse_party(party, self.slots, &self.first);
        (class != Class::Background).then(refused).flatten()
    }

    /// Whether an issuer that asked for fewer runs admits one of `party`.
    fn admits(&self, (class, issuer): &Door, party: Party, now: Duration) -> bool {
        *class == Class::Forced || self.pace(issuer).is_some_and(|pace| pace.admits(party, now))
    }

    /// Answers the callers that wait although `issuer` is paused. One of their runs is the next probe if one is due: no run of
    /// the broker could start, or it would have.
    fn refuse(&mut self, issuer: &Arc<str>, now: Duration) {
        let Some(left) = self.paused(issuer, now) else { return };
        for id in self.first.awaited(&(Class::First, Arc::clone(issuer))) {
            let Some(run) = self.waiting.get(&id).filter(|run| run.floor != Urgency::Forced) else {
                continue;
            };
            let Some(pace) = self.pace(issuer) else { return };
            let is_due = self.has_room() && pace.gate(Class::First, now) == Gate::Open;
            let may_start = |party: &Party| {
                let has_share = self.refuse_share(Class::First, *party).is_some();
                is_due && !has_share && pace.may_probe(run.source, *party)
            };
            let probe = run.peers.keys().map(|peer| Party::Peer(*peer)).find(may_start);
            if let Some(party) = probe {
                self.begin(id, Class::First, party, now);
            } else if self.remove(id).is_some() {
                self.answers.push((id, RunAdmission::Throttled(left)));
            }
        }
    }

    /// Starts a run in the turn of `party`, to whose share it counts.
    fn begin(&mut self, id: u64, class: Class, party: Party, now: Duration) {
        let turn = self.next;
        let Some(QueuedRun { issuer, source, .. }) = self.remove(id) else { return };
        let Some(queued) = self.issuers.get_mut(&issuer) else { return };
        queued.turn = turn;
        let record = queued.pace.start(class, Blame::new(source, party), now);
        if class == Class::Background {
            self.background_runs += 1;
        } else {
            self.shares.start(party);
        }
        self.started.insert(id, StartedRun { issuer, party, class, record, is_aside: false });
        self.answers.push((id, RunAdmission::Start));
    }

    /// Frees the slot of a run that `party` started.
    fn free(&mut self, class: Class, party: Party) {
        if class == Class::Background {
            self.background_runs -= 1;
        } else {
            self.shares.finish(party);
        }
    }

    /// Queues a run for `party`.
    fn put(&mut self, id: u64, door: Door, party: Party) {
        let turn = self.number();
        self.line(door.0).insert(door, party, id, turn);
    }

    fn remove(&mut self, id: u64) -> Option<QueuedRun> {
        let run = self.waiting.remove(&id)?;
        for (class, party) in run.places() {
            self.line(class).remove(&(class, Arc::clone(&run.issuer)), party, id);
        }
        if let Some(runs) = self.providers.get_mut(&run.provider) {
            *runs -= 1;
            if *runs == 0 {
                self.providers.remove(&run.provider);
            }
        }
        Some(run)
    }

    fn line(&mut self, class: Class) -> &mut Line {
        if class == Class::Background { &mut self.background } else { &mut self.first }
    }

    fn pace(&self, issuer: &Arc<str>) -> Option<&Pace> {
        Some(&self.issuers.get(issuer)?.pace)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests;
