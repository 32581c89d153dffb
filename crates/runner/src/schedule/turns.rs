//! Whose turn it is: uids take turns, and within a uid its processes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::error::seconds;
use credbroker_plugin::PluginKey;

/// The process of the requests that the broker itself makes. No process has this uid.
pub const BROKER: u64 = (u32::MAX as u64) << 32;

/// How urgent a run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// No caller waits: a refresh ahead of expiry, prewarm, a refresh of many keys.
    Background,
    /// No caller waits, but the credential is in use and expires soon. In the same class as [`Waited`](Self::Waited).
    Urgent {
        /// The uid that used it last, whose turn the run takes; `None`: only the broker did.
        uid: Option<u32>,
    },
    /// Only a caller needs it. It is background work from when the last caller leaves.
    Waited {
        /// Identifies the caller's process, or [`BROKER`].
        peer: u64,
    },
    /// A user asked for this run. It starts even while its issuer is paused.
    Forced,
}

/// Who decides what the plugin of a run receives, and with that what it can write to stderr.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunSource {
    /// The configuration alone. Such runs have different keys.
    Configuration(PluginKey),
    /// Also callers or a ClusterProfile.
    Others {
        /// The uid whose request made the key, with variables or a cluster; `None`: no caller sent any.
        uid: Option<u32>,
    },
}

impl RunSource {
    /// The uid whose text the plugin receives.
    pub(super) fn uid(self) -> Option<u32> {
        match self {
            Self::Configuration(_) => None,
            Self::Others { uid } => uid,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    /// Other runs are next, or have all slots: as many as this.
    Slots(usize),
    /// The caller's process has so many runs, three quarters of those of its uid.
    ProcessShare(usize),
    /// The processes of the caller's uid have so many runs, three quarters of the slots.
    UidShare(usize),
    Concurrency(usize),
    Rate(usize),
    Paused(Duration),
    Probe,
}

impl Cause {
    pub(super) fn clause(self, issuer: &str) -> String {
        match self {
            Self::Slots(runs) => format!("all run slots are in use (`limits.pluginRuns`: {runs})"),
            Self::ProcessShare(runs) => {
                format!("this process has its share of runs ({runs}), and another process of its uid waits")
            }
            Self::UidShare(runs) => {
                format!("this uid has its share of `limits.pluginRuns` ({runs} runs), and another uid waits")
            }
            Self::Concurrency(runs) => {
                format!("issuer `{issuer}` is at its limit of concurrent runs ({runs})")
            }
            Self::Rate(runs) => format!("issuer `{issuer}` is at its limit of runs per second ({runs})"),
            Self::Paused(left) => {
                let left = seconds(left);
                format!("issuer `{issuer}` asked for fewer runs and is paused for another {left}")
            }
            Self::Probe => format!(
                "issuer `{issuer}` asked for fewer runs, and one run tests whether it accepts runs again"
            ),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Class {
    /// Takes turns with [`First`](Self::First). Of its issuer, only the configured limits apply.
    Forced,
    /// Before background runs.
    First,
    /// Evenly spread over a second, so that a caller that comes waits for a part of the second only.
    Background,
}

/// Where a run waits: each issuer lets the classes in at other times.
pub(super) type Door = (Class, Arc<str>);

/// Whose turns: those of a uid; `None`: the broker's own.
pub(super) type Group = Option<u32>;

/// A member of a group, which takes turns within it: the broker, or a process whose callers wait. Sorted by group.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Party {
    /// In whose turn. Of the broker: for whom it refreshes a credential, or whose request made the key.
    pub(super) group: Group,
    /// The uid that may have decided what the plugins receive.
    pub(super) sender: Option<u32>,
    /// `None`: the broker.
    pub(super) process: Option<u64>,
}

impl Party {
    /// A process whose callers wait. The upper half of its number is its uid.
    pub(super) fn peer(process: u64) -> Self {
        let uid = u32::try_from(process >> 32).unwrap_or(u32::MAX);
        let group = (process != BROKER).then_some(uid);
        Self { group, sender: group, process: Some(process) }
    }
}

/// Queued runs. A run that several parties wait for is queued for each of them, so that it starts in the first turn of any:
/// a caller that joins delays no other. New groups and parties, and those that had their turn, are the last.
///
/// To add or remove a run takes O(log n), and [`next`](Self::next) a look at each party.
#[derive(Debug, Default)]
pub(super) struct Line(BTreeMap<Party, Member>);

#[derive(Debug)]
struct Member {
    /// Of its group, and its own. The numbers of turns only increase.
    turns: (u64, u64),
    /// The runs at each door, in the order of entry.
    doors: BTreeMap<Door, BTreeSet<u64>>,
}

/// The runs of a party at one door, after the turns of its group and of the party.
type Lane<'a> = ((u64, u64), Party, &'a Door, &'a BTreeSet<u64>);

impl Line {
    /// Adds the run `id`, which `party` does not wait for yet. `turn` is larger than any turn so far.
    pub(super) fn insert(&mut self, door: Door, party: Party, id: u64, turn: u64) {
        let of_group = self.of_group(party.group).next().map_or(turn, |(_, member)| member.turns.0);
        let new = || Member { turns: (of_group, turn), doors: BTreeMap::new() };
        self.0.entry(party).or_insert_with(new).doors.entry(door).or_default().insert(id);
    }

    pub(super) fn remove(&mut self, door: &Door, party: Party, id: u64) {
        let Some(member) = self.0.get_mut(&party) else { return };
        let Some(runs) = member.doors.get_mut(door) else { return };
        runs.remove(&id);
        if runs.is_empty() {
            member.doors.remove(door);
        }
        if member.doors.is_empty() {
            self.0.remove(&party);
        }
    }

    /// Notes that `party` had its turn. The next one of it and of its group is `turn`, which is larger than any turn so far.
    pub(super) fn pass(&mut self, party: Party, turn: u64) {
        for (other, member) in self.0.iter_mut().filter(|(other, _)| other.group == party.group) {
            member.turns.0 = turn;
            if *other == party {
                member.turns.1 = turn;
            }
        }
    }

    /// The next run that `may_start`, the party whose turn it is, and the door: of the first group that has one, the first
    /// party, and of its doors the one with the lowest `last`, the turn in which it last let a run in.
    pub(super) fn next(
        &self,
        may_start: impl Fn(&Door, Party) -> bool,
        last: impl Fn(&Door) -> u64,
    ) -> Option<(u64, Party, Door)> {
        let lanes = self.lanes().filter(|(_, party, door, _)| may_start(door, *party));
        let (_, party, door, runs) =
            lanes.min_by_key(|(turns, _, door, runs)| (*turns, last(door), runs.first()))?;
        Some((*runs.first()?, party, door.clone()))
    }

    /// The doors at which runs wait, once for each party.
    pub(super) fn doors(&self) -> impl Iterator<Item = &Door> {
        self.lanes().map(|(_, _, door, _)| door)
    }

    /// The runs that callers wait for at `door`, in the order of their turns, once for each process.
    pub(super) fn awaited(&self, door: &Door) -> Vec<u64> {
        let is_awaited = |(_, party, at, _): &Lane<'_>| *at == door && party.process.is_some();
        let mut lanes: Vec<_> = self.lanes().filter(is_awaited).collect();
        lanes.sort_unstable_by_key(|(turns, ..)| *turns);
        lanes.into_iter().flat_map(|(.., runs)| runs).copied().collect()
    }

    fn lanes(&self) -> impl Iterator<Item = Lane<'_>> {
        self.0.iter().flat_map(|(party, member)| {
            member.doors.iter().map(|(door, runs)| (member.turns, *party, door, runs))
        })
    }

    fn of_group(&self, group: Group) -> impl Iterator<Item = (&Party, &Member)> {
        let first = Party { group, sender: None, process: None };
        self.0.range(first..).take_while(move |(party, _)| party.group == group)
    }

    pub(super) fn has_other_group(&self, group: Group) -> bool {
        let ends = [self.0.first_key_value(), self.0.last_key_value()];
        ends.into_iter().flatten().any(|(party, _)| party.group != group)
    }

    pub(super) fn has_other_party(&self, party: Party) -> bool {
        self.of_group(party.group).any(|(other, _)| *other != party)
    }
}
