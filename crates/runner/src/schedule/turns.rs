//! Whose turn it is: uids take turns, and within a uid its processes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use credbroker_plugin::PluginKey;

/// The process of the requests that the broker itself makes. No process has this uid.
pub const BROKER: u64 = (u32::MAX as u64) << 32;

/// How urgent a run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// No caller waits: a refresh ahead of expiry, prewarm, a refresh of many keys.
    Background,
    /// No caller waits, but the credential is in use and expires soon. Such runs have the same class as those that callers
    /// wait for.
    Urgent {
        /// The uid that used it last, whose turn the run takes; `None`: only the broker did.
        uid: Option<u32>,
    },
    /// Only a caller needs it. It is background work from when the last caller leaves.
    Waited {
        /// Identifies the caller's process, or [`BROKER`].
        peer: u64,
    },
    /// A person asked for this run. It starts even while its issuer is paused.
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

/// Why a run waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    /// All run slots are in use, or other runs are next.
    Slots { runs: usize },
    /// The caller's process has so many runs, three quarters of those of its uid, and another process of the uid waits.
    ProcessShare { runs: usize },
    /// The processes of the caller's uid have so many runs, three quarters of the slots, and another uid waits.
    UidShare { runs: usize },
    /// The issuer has as many runs at a time as it allows.
    Concurrency { runs: usize },
    /// The issuer had as many runs in this second as it allows.
    Rate { runs: usize },
    /// The issuer asked for fewer runs.
    Paused { left: Duration },
    /// The issuer asked for fewer runs, and one run is trying it again.
    Probe,
}

/// The classes of runs.
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

/// The members of a group, which take turns within it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Party {
    /// The broker.
    Broker {
        /// For whom it renews a credential, or whose request made the key.
        group: Group,
        /// The uid whose text the plugins receive.
        sender: Option<u32>,
    },
    /// A process whose callers wait.
    Peer(u64),
}

impl Party {
    pub(super) fn group(self) -> Group {
        match self {
            Self::Broker { group, .. } => group,
            Self::Peer(BROKER) => None,
            // The upper half of a process is its uid.
            Self::Peer(process) => Some(u32::try_from(process >> 32).unwrap_or(u32::MAX)),
        }
    }

    /// The uid that may have decided what the plugin receives.
    pub(super) fn sender(self) -> Option<u32> {
        match self {
            Self::Broker { sender, .. } => sender,
            Self::Peer(_) => self.group(),
        }
    }
}

/// Queued runs. A run that several parties wait for is queued for each of them, so that it starts in the first turn of any:
/// a caller that joins delays no other. New groups and parties, and those that had their turn, are the last.
///
/// To add, move or remove a run takes O(log n), and [`next`](Self::next) a look at each party.
#[derive(Debug, Default)]
pub(super) struct Line {
    groups: HashMap<Group, Members>,
}

/// The waiting parties of a group. The numbers of turns only increase.
#[derive(Debug)]
struct Members {
    turn: u64,
    parties: HashMap<Party, Member>,
}

#[derive(Debug)]
struct Member {
    turn: u64,
    /// The runs at each door, in the order of entry.
    doors: BTreeMap<Door, BTreeSet<u64>>,
}

/// The runs of a party at one door, after the turns of its group and of the party.
type Lane<'a> = ((u64, u64), Party, &'a Door, &'a BTreeSet<u64>);

impl Line {
    /// Adds the run `id`, which `party` does not wait for yet. `turn` is larger than any turn so far.
    pub(super) fn insert(&mut self, door: Door, party: Party, id: u64, turn: u64) {
        let new = || Members { turn, parties: HashMap::new() };
        let members = self.groups.entry(party.group()).or_insert_with(new);
        let new = || Member { turn, doors: BTreeMap::new() };
        members.parties.entry(party).or_insert_with(new).doors.entry(door).or_default().insert(id);
    }

    /// Removes the run `id` of `party`, if it is queued.
    pub(super) fn remove(&mut self, door: &Door, party: Party, id: u64) {
        let Some(members) = self.groups.get_mut(&party.group()) else { return };
        let Some(member) = members.parties.get_mut(&party) else { return };
        let Some(runs) = member.doors.get_mut(door) else { return };
        runs.remove(&id);
        if runs.is_empty() {
            member.doors.remove(door);
        }
        if member.doors.is_empty() {
            members.parties.remove(&party);
        }
        if members.parties.is_empty() {
            self.groups.remove(&party.group());
        }
    }

    /// Notes that `party` had its turn. The next one of it and of its group is `turn`, which is larger than any turn so far.
    pub(super) fn pass(&mut self, party: Party, turn: u64) {
        let Some(members) = self.groups.get_mut(&party.group()) else { return };
        members.turn = turn;
        if let Some(member) = members.parties.get_mut(&party) {
            member.turn = turn;
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
        let is_awaited = |(_, party, at, _): &Lane<'_>| *at == door && matches!(party, Party::Peer(_));
        let mut lanes: Vec<_> = self.lanes().filter(is_awaited).collect();
        lanes.sort_unstable_by_key(|(turns, ..)| *turns);
        lanes.into_iter().flat_map(|(.., runs)| runs).copied().collect()
    }

    fn lanes(&self) -> impl Iterator<Item = Lane<'_>> {
        self.groups.values().flat_map(|group| {
            group.parties.iter().flat_map(|(party, member)| {
                let turns = (group.turn, member.turn);
                member.doors.iter().map(move |(door, runs)| (turns, *party, door, runs))
            })
        })
    }

    /// Whether a run of another group waits.
    pub(super) fn has_other_group(&self, group: Group) -> bool {
        self.groups.len() > usize::from(self.groups.contains_key(&group))
    }

    /// Whether a run of another party of the same group waits.
    pub(super) fn has_other_party(&self, party: Party) -> bool {
        let members = self.groups.get(&party.group());
        members.is_some_and(|group| group.parties.len() > usize::from(group.parties.contains_key(&party)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}
