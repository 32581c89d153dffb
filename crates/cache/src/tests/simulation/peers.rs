//! The processes that ask, and the runs that they may have: a run that may start does not wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    fleet::index,
    keys::{Content, KeyModel, Reading, RequestKind, WaitingRequest},
    model::Model,
    plugins::secs,
    runs::LOOK,
};
use credbroker_plugin::{PluginSpec, Provider};

/// Three processes of each of two uids: a uid in the upper half, a process ID in the lower one.
pub(super) const PEERS: [u64; 6] =
    [1000 << 32 | 1, 1000 << 32 | 2, 1000 << 32 | 3, 1001 << 32 | 4, 1001 << 32 | 5, 1001 << 32 | 6];
/// Timers of tokio round up to a millisecond.
const TICK: Duration = Duration::from_millis(5);
/// How late the scheduler notices a suspend.
const NOTICED: Duration = Duration::from_millis(1100);

/// The runs in progress.
#[derive(Debug, Default)]
pub(super) struct StartedRuns {
    runs: BTreeMap<u64, StartedRun>,
    /// When the last of them ended, and the last one that may have needed a user: time awake.
    ended: Duration,
    prompted: Duration,
}

/// A run in progress.
#[derive(Debug)]
pub(super) struct StartedRun {
    key: usize,
    provider: Arc<Provider>,
    /// Its provider was retired while it was the run of its entry.
    is_retired: bool,
    asks_persons: bool,
    /// The processes that waited when it started: one of them, or none, has a run less until its end.
    parties: BTreeSet<u64>,
    /// It may refresh a credential, for the uid that used it last.
    may_renew: bool,
    /// Time awake.
    since: Duration,
}

impl StartedRun {
    pub(super) fn new(spec: &PluginSpec, asks_persons: bool, key: &KeyModel, now: Reading) -> Self {
        Self {
            key: index(spec),
            provider: Arc::clone(&spec.provider),
            is_retired: false,
            asks_persons,
            parties: key.parties(now),
            may_renew: key.may_renew(now),
            since: now.awake,
        }
    }

    /// The longest time that it may take.
    fn longest(&self) -> Duration {
        let Provider { timeout, interactive_timeout, .. } = *self.provider;
        if self.asks_persons { interactive_timeout + timeout } else { timeout }
    }
}

impl StartedRuns {
    pub(super) fn start(&mut self, number: u64, run: StartedRun) {
        self.runs.insert(number, run);
    }

    pub(super) fn end(&mut self, number: u64, now: Reading) {
        if self.runs.remove(&number).is_some_and(|run| run.asks_persons) {
            self.prompted = now.awake;
        }
        self.ended = now.awake;
    }

    /// The provider of `key` is retired, whose entry has this run in progress.
    pub(super) fn retire(&mut self, key: usize) {
        self.runs.values_mut().filter(|run| run.key == key).for_each(|run| run.is_retired = true);
    }

    /// Whether no run that may need a user had a slot for so long.
    pub(super) fn is_unprompted(&self, time: Duration, now: Reading) -> bool {
        self.runs.values().all(|run| !run.asks_persons) && self.prompted + time <= now.awake
    }

    /// The number of those that certainly have a slot.
    pub(super) fn without_persons(&self) -> usize {
        self.runs.values().filter(|run| !run.asks_persons).count()
    }

    /// Whether `peer` has certainly less than its share of `slots`, even if other users wait.
    fn has_share_left(&self, peer: u64, slots: usize) -> bool {
        let of_process = self.runs.values().filter(|run| run.parties.contains(&peer)).count();
        let is_of_uid =
            |run: &&StartedRun| run.may_renew || run.parties.iter().any(|other| uid(*other) == uid(peer));
        let of_uid = self.runs.values().filter(is_of_uid).count();
        let per_uid = (slots * 3 / 4).max(1);
        of_process < (per_uid * 3).div_ceil(4) && of_uid < per_uid
    }
}

pub(super) fn uid(peer: u64) -> u64 {
    peer >> 32
}

impl KeyModel {
    /// The processes whose callers wait for its run, or have left at this moment.
    pub(super) fn parties(&self, now: Reading) -> BTreeSet<u64> {
        let left = self.left.iter().filter(|(at, _)| *at == now.awake).map(|(_, peer)| *peer);
        self.waiting.values().map(|waiting| waiting.peer).chain(left).collect()
    }

    /// Whether its run may be queued also for the uid that used it last, and so count to the share of that uid: the
    /// credential is held, or is watched.
    fn may_renew(&self, now: Reading) -> bool {
        // When a watch closes, the cache changes the urgency of the run when it looks at the key next, unless callers wait.
        let awaited_since = self.waiting.values().map(|waiting| waiting.since).fold(now.awake, Duration::min);
        let was_watched = self.unwatched.is_some_and(|at| awaited_since < at + LOOK);
        // The cache no longer changes the urgency of a run from before an eviction.
        let is_detached = !self.detached.is_empty();
        !matches!(self.content, Content::Nothing) || !self.watches.is_empty() || was_watched || is_detached
    }

    /// The callers that certainly wait for a run since an earlier moment.
    fn waiters(&self, now: Reading) -> impl Iterator<Item = (&u64, &WaitingRequest)> {
        // A watch that has seen the outcome of the last run waits for another credential.
        let waits =
            |waiting: &WaitingRequest| waiting.kind != RequestKind::Watch || waiting.since > self.ended;
        self.waiting
            .iter()
            .filter(move |(_, waiting)| waiting.cold && waiting.since < now.awake && waits(waiting))
    }
}

impl Model {
    /// Whether a caller that certainly waits for a run of `key` had less than its share before this moment.
    pub(super) fn is_entitled(&self, key: &KeyModel, now: Reading) -> bool {
        self.started.ended < now.awake
            && key.waiters(now).any(|(_, waiting)| self.started.has_share_left(waiting.peer, self.slots))
    }

    /// Every run ends in time, and the run of an entry ends immediately when its provider is retired.
    pub(super) fn judge_runs(&mut self, now: Reading) {
        let endless = self.started.runs.iter().find_map(|(number, run)| {
            let time = now.awake.saturating_sub(run.since);
            let is_late = time > run.longest() + TICK;
            (is_late || run.is_retired && self.changed < now.awake).then_some((*number, time))
        });
        if let Some((number, time)) = endless {
            self.broken(|| format!("run {number} has no end: it started {time:?} ago"));
        }
    }

    /// No run is queued that one of its callers may have: who else waits for it makes no difference.
    pub(super) fn judge_queue(&mut self) {
        let now = self.now();
        let is_settled = self.changed < now.awake && self.jumped + NOTICED < now.awake;
        if !is_settled || self.started.runs.len() >= self.slots {
            return;
        }
        let is_open: Vec<_> = (0..self.issuers.len()).map(|issuer| self.is_open(issuer, now)).collect();
        let delayed = self.keys.iter().enumerate().find_map(|(index, key)| {
            let is_queued = key.running.is_empty() && key.detached.is_empty() && key.held(now).is_none();
            let is_queued = is_queued && !matches!(key.content, Content::Unsure);
            if !is_queued || !is_open[key.issuer] || now.boot < key.throttled_until {
                return None;
            }
            let entitled =
                |(_, waiting): &(_, &WaitingRequest)| self.started.has_share_left(waiting.peer, self.slots);
            key.waiters(now).find(entitled).map(|(id, _)| (index, *id))
        });
        if let Some((key, id)) = delayed {
            let others = self.keys[key].parties(now).len() - 1;
            self.broken(|| {
                format!(
                    "the run of key {key} waits although #{id} may have it: a slot is free, and its process has less \
                     than its share; {others} other processes wait for it"
                )
            });
        }
    }

    /// Whether runs of `issuer` that a caller waits for may certainly start.
    fn is_open(&self, issuer: usize, now: Reading) -> bool {
        let (limits, known) = (self.catalog.issuer(issuer), &self.issuers[issuer]);
        let recent = known.starts.iter().filter(|start| **start + secs(1) + TICK > now.boot).count();
        now.boot >= known.disturbed_until
            && recent < limits.runs_per_second.get()
            && known.running < limits.concurrency.get()
    }
}
