//! Picks the next run. Pure: `now` is the time since boot.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    issuer::{Gate, Outcome, Pace, PaceChange, StartedRun},
    turns::{Cause, Class, Door, Line, Party, RunSource, Urgency},
};
use credbroker_plugin::Issuer;

/// The answer to a queued run: it starts, or its issuer is paused for this time.
pub(super) type Answer = (u64, Result<(), Duration>);

/// The queued and the started runs.
#[derive(Debug, Default)]
pub(super) struct Queue {
    slots: usize,
    /// How many runs besides them may wait for a user at a time.
    pub(super) interactive: usize,
    waiting: HashMap<u64, QueuedRun>,
    /// The queued runs that callers wait for, and urgent and forced ones. Background runs wait in another line.
    first: Line,
    background: Line,
    /// Each with its issuer.
    started: HashMap<u64, (Arc<str>, StartedRun)>,
    /// With the limits of the newest configuration. A provider that has not changed may name earlier ones.
    issuers: BTreeMap<Arc<str>, Pace>,
    /// Numbers runs and turns.
    next: u64,
}

#[derive(Debug)]
pub(super) struct QueuedRun {
    provider: Arc<str>,
    issuer: Arc<str>,
    source: RunSource,
    /// Its urgency while no caller waits. [`Urgency::Waited`] before the last caller leaves: it is not queued for the broker.
    floor: Urgency,
    /// The processes whose callers wait, and how many callers of each.
    peers: BTreeMap<u64, usize>,
}

impl QueuedRun {
    /// In which class, and in whose turn, it starts without a caller; `None`: only callers need it.
    fn own_place(&self) -> Option<(Class, Party)> {
        let sender = self.source.uid();
        let of = |group| Party { group, sender, process: None };
        match self.floor {
            Urgency::Background => Some((Class::Background, of(sender))),
            Urgency::Forced => Some((Class::Forced, of(sender))),
            Urgency::Urgent { uid } => Some((Class::First, of(uid))),
            Urgency::Waited { .. } => None,
        }
    }

    /// Where it is queued, and for whom. It starts in the first turn of any of them.
    fn places(&self) -> impl Iterator<Item = (Class, Party)> {
        let callers = self.peers.keys().map(|peer| (Class::First, Party::peer(*peer)));
        self.own_place().into_iter().chain(callers)
    }
}

impl Queue {
    /// A queue for `runs` runs at a time, at least one.
    pub(super) fn new(runs: usize) -> Self {
        Self { slots: runs.max(1), ..Self::default() }
    }

    /// Adds a run and returns its number.
    pub(super) fn enter(
        &mut self,
        provider: &Arc<str>,
        issuer: &Issuer,
        (floor, source): (Urgency, RunSource),
    ) -> u64 {
        let id = self.number();
        self.issuers.entry(Arc::clone(&issuer.name)).or_insert_with(|| Pace::new(issuer));
        let first = if let Urgency::Waited { peer } = floor { Some((peer, 1)) } else { None };
        let peers = first.into_iter().collect();
        let (provider, issuer) = (Arc::clone(provider), Arc::clone(&issuer.name));
        let run = QueuedRun { provider, issuer, source, floor, peers };
        for (class, party) in run.places() {
            self.put(id, (class, Arc::clone(&run.issuer)), party);
        }
        self.waiting.insert(id, run);
        id
    }

    /// Sets the limits of a newer configuration. Runs that have started go on.
    pub(super) fn set_limits(&mut self, runs: usize, issuers: impl IntoIterator<Item = Arc<Issuer>>) {
        self.slots = runs.max(1);
        for issuer in issuers {
            let pace = self.issuers.entry(Arc::clone(&issuer.name));
            pace.or_insert_with(|| Pace::new(&issuer)).set_limits(&issuer);
        }
    }

    /// Queues a run that has not started for one more caller, in `peer`.
    ///
    /// # Errors
    ///
    /// Its issuer is paused for this time. The run stays as it is.
    pub(super) fn join(&mut self, id: u64, peer: u64, now: Duration) -> Result<(), Duration> {
        let Some(run) = self.waiting.get_mut(&id) else { return Ok(()) };
        let paused = self.issuers.get(&run.issuer).and_then(|issuer| issuer.paused(now));
        if let Some(left) = paused.filter(|_| run.floor != Urgency::Forced) {
            return Err(left);
        }
        let callers = run.peers.entry(peer).or_default();
        *callers += 1;
        if *callers == 1 {
            let door = (Class::First, Arc::clone(&run.issuer));
            self.put(id, door, Party::peer(peer));
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
        self.first.remove(&(Class::First, Arc::clone(&run.issuer)), Party::peer(peer), id);
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

    /// Counts a started run among those that wait for a user, and returns whether there is room for it.
    pub(super) fn step_aside(&mut self, id: u64) -> bool {
        let has_room = self.running(|run| run.is_aside) < self.interactive;
        let Some((issuer, run)) = self.started.get_mut(&id).filter(|(_, run)| has_room && !run.is_aside)
        else {
            return false;
        };
        run.is_aside = true;
        if let Some(pace) = self.issuers.get_mut(issuer) {
            pace.step_aside(run);
        }
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
        let (issuer, run) = self.started.remove(&id)?;
        let change = self.issuers.get_mut(&issuer)?.finish(run, outcome, u, now)?;
        Some((issuer, change))
    }

    /// How long the pause of `issuer` still lasts.
    pub(super) fn paused(&self, issuer: &str, now: Duration) -> Option<Duration> {
        self.issuers.get(issuer)?.paused(now)
    }

    /// Starts the runs that may start, and returns all answers since the last call.
    pub(super) fn dispatch(&mut self, now: Duration) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            while let Some((id, party, (class, _))) = self.next_run(now) {
                let turn = self.number();
                self.line(class).pass(party, turn);
                answers.extend(self.begin(id, class, party, now));
            }
            let refused = self.refuse(now);
            if refused.is_empty() {
                return answers;
            }
            answers.extend(refused);
        }
    }

    /// When to dispatch again if nothing changes. `None`: no run waits for a time.
    pub(super) fn next_wake(&self, now: Duration) -> Option<Duration> {
        let opens_at = |(class, issuer): &Door| self.issuers.get(issuer)?.opens_at(*class, now);
        self.open_lines().flat_map(Line::doors).filter_map(opens_at).min()
    }

    /// Why a queued run waits, for the answer to a caller in `peer`, and the number of other queued runs of its provider.
    pub(super) fn waits_for(&self, id: u64, peer: Option<u64>, now: Duration) -> Option<(Cause, usize)> {
        let run = self.waiting.get(&id)?;
        let others = self.waiting.values().filter(|other| other.provider == run.provider).count() - 1;
        let class = match run.own_place() {
            Some((Class::Forced, _)) => Class::Forced,
            Some((Class::Background, _)) if run.peers.is_empty() => Class::Background,
            _ => Class::First,
        };
        let mut cause = None;
        for (_, party) in run.places().filter(|(of, _)| *of == class) {
            // Where nothing is in the way, other runs are next.
            let Some(obstacle) = self.obstacle(class, &run.issuer, party, now) else {
                return Some((Cause::Slots(self.slots), others));
            };
            if cause.is_none() || (peer.is_some() && peer == party.process) {
                cause = Some(obstacle);
            }
        }
        Some((cause?, others))
    }

    /// The next run that may start, in whose turn, and at which door.
    fn next_run(&self, now: Duration) -> Option<(u64, Party, Door)> {
        let may_start = |(class, issuer): &Door, party| self.obstacle(*class, issuer, party, now).is_none();
        let last = |(_, issuer): &Door| self.issuers.get(issuer).map_or(0, |pace| pace.turn);
        self.open_lines().find_map(|line| line.next(may_start, last))
    }

    /// The lines of which a run may start, in their order.
    fn open_lines(&self) -> impl Iterator<Item = &Line> {
        let lines = [(Class::First, &self.first), (Class::Background, &self.background)];
        lines.into_iter().filter(|(class, _)| self.has_room(*class)).map(|(_, line)| line)
    }

    /// Whether there is a slot for a run of `class`. Background runs leave the last one to others, if there are two.
    fn has_room(&self, class: Class) -> bool {
        let is_background = |run: &StartedRun| !run.is_aside && run.class == Class::Background;
        let may = class != Class::Background || self.slots == 1;
        self.running(|run| !run.is_aside) < self.slots
            && (may || self.running(is_background) + 1 < self.slots)
    }

    fn running(&self, is_counted: impl Fn(&StartedRun) -> bool) -> usize {
        self.started.values().filter(|(_, run)| is_counted(run)).count()
    }

    /// Why no run of `party` starts now; `None`: nothing is in the way.
    fn obstacle(&self, class: Class, issuer: &Arc<str>, party: Party, now: Duration) -> Option<Cause> {
        let pace = self.issuers.get(issuer)?;
        self.limit(class, pace, party, now).or_else(|| {
            let is_admitted = class == Class::Forced || pace.admits(party, now);
            let cause = || pace.paused(now).map_or(Cause::Probe, Cause::Paused);
            (!is_admitted).then(cause)
        })
    }

    /// The same, for whichever run tries an issuer that asked for fewer runs.
    fn limit(&self, class: Class, pace: &Pace, party: Party, now: Duration) -> Option<Cause> {
        match pace.gate(class, now) {
            Gate::At(_, cause) | Gate::Shut(cause) => Some(cause),
            Gate::Open if !self.has_room(class) => Some(Cause::Slots(self.slots)),
            Gate::Open if class == Class::Background => None,
            Gate::Open => self.share(party),
        }
    }

    /// Whether `party` or its group has its share of the slots. A share applies only while others wait: a group has three
    /// quarters of the slots while another group waits, and a party three quarters of what its group may have while another
    /// party of it waits. Background runs count to no share.
    fn share(&self, party: Party) -> Option<Cause> {
        let (slots, group, line) = (self.slots, party.group, &self.first);
        let of_group = if line.has_other_group(group) { (slots * 3 / 4).max(1) } else { slots };
        let counts = |run: &StartedRun| !run.is_aside && run.class != Class::Background;
        let runs = self.running(|run| counts(run) && run.party.group == group);
        if runs >= of_group {
            return Some(Cause::UidShare(runs));
        }
        let runs = self.running(|run| counts(run) && run.party == party);
        let has_share = line.has_other_party(party) && runs >= (of_group * 3).div_ceil(4);
        has_share.then_some(Cause::ProcessShare(runs))
    }

    /// Answers the callers that wait although their issuer is paused. One of their runs is the next probe if one is due: no
    /// run of the broker could start, or it would have.
    fn refuse(&mut self, now: Duration) -> Vec<Answer> {
        let paused =
            self.issuers.iter().filter_map(|(name, pace)| Some((Arc::clone(name), pace.paused(now)?)));
        let paused: Vec<_> = paused.collect();
        let mut answers = Vec::new();
        for (issuer, left) in paused {
            for id in self.first.awaited(&(Class::First, Arc::clone(&issuer))) {
                let (Some(run), Some(pace)) = (self.waiting.get(&id), self.issuers.get(&issuer)) else {
                    continue;
                };
                if run.floor == Urgency::Forced {
                    continue;
                }
                let may_start = |party: &Party| {
                    pace.may_probe(run.source, *party)
                        && self.limit(Class::First, pace, *party, now).is_none()
                };
                if let Some(party) = run.peers.keys().map(|peer| Party::peer(*peer)).find(may_start) {
                    answers.extend(self.begin(id, Class::First, party, now));
                } else if self.remove(id).is_some() {
                    answers.push((id, Err(left)));
                }
            }
        }
        answers
    }

    /// Starts a run in the turn of `party`, to whose share it counts.
    fn begin(&mut self, id: u64, class: Class, party: Party, now: Duration) -> Option<Answer> {
        let QueuedRun { issuer, source, .. } = self.remove(id)?;
        let pace = self.issuers.get_mut(&issuer)?;
        pace.turn = self.next;
        let run = pace.start(class, (source, party), now);
        self.started.insert(id, (issuer, run));
        Some((id, Ok(())))
    }

    fn put(&mut self, id: u64, door: Door, party: Party) {
        let turn = self.number();
        self.line(door.0).insert(door, party, id, turn);
    }

    /// Removes a run that has not started.
    pub(super) fn remove(&mut self, id: u64) -> Option<QueuedRun> {
        let run = self.waiting.remove(&id)?;
        for (class, party) in run.places() {
            self.line(class).remove(&(class, Arc::clone(&run.issuer)), party, id);
        }
        Some(run)
    }

    fn line(&mut self, class: Class) -> &mut Line {
        if class == Class::Background { &mut self.background } else { &mut self.first }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests;
