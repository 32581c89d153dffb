//! Whose turn it is: uids take turns, and within a uid its processes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
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
pub enum Cause {
    /// All run slots are in use, or other runs are next.
    Slots {
        /// `limits.pluginRuns`.
        runs: usize,
    },
    /// The caller's process has three quarters of the runs of its uid, and another process of the uid waits.
    ProcessShare {
        /// The runs that it has.
        runs: usize,
    },
    /// The processes of the caller's uid have three quarters of the slots, and another uid waits.
    UidShare {
        /// The runs that they have.
        runs: usize,
    },
    /// The issuer has as many runs at a time as it allows.
    Concurrency {
        /// The limit.
        runs: usize,
    },
    /// The issuer had as many runs in this second as it allows.
    Rate {
        /// The limit.
        runs: usize,
    },
    /// The issuer asked for fewer runs.
    Paused {
        /// How long the pause still lasts.
        left: Duration,
    },
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
            Self::Peer(process) => Some(uid(process)),
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

/// The upper half of a process is its uid.
fn uid(process: u64) -> u32 {
    u32::try_from(process >> 32).unwrap_or(u32::MAX)
}

/// Queued runs. A run that several parties wait for is queued for each of them, so that it starts in the first turn of any:
/// a caller that joins delays no other. New groups and parties, and those that had their turn, are the last.
///
/// Each operation takes O(log n), and [`next`](Self::next) a look at each group and the doors at which it waits.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// By the number of the turn, which only increases.
    order: BTreeMap<u64, Group>,
    groups: HashMap<Group, Members>,
}

#[derive(Debug)]
struct Members {
    turn: u64,
    /// The turn of each party, and for how many runs it waits.
    parties: HashMap<Party, (u64, usize)>,
    /// By turn: the parties that wait at a door, and their runs in the order of entry.
    doors: BTreeMap<Door, BTreeMap<u64, (Party, BTreeSet<u64>)>>,
}

impl Line {
    /// Adds the run `id`, which `party` does not wait for yet. `turn` is larger than any turn so far.
    pub(super) fn insert(&mut self, door: Door, party: Party, id: u64, turn: u64) {
        let members = self.groups.entry(party.group()).or_insert_with(|| {
            self.order.insert(turn, party.group());
            Members { turn, parties: HashMap::new(), doors: BTreeMap::new() }
        });
        let (turn, runs) = members.parties.entry(party).or_insert((turn, 0));
        *runs += 1;
        let waiting = members.doors.entry(door).or_default().entry(*turn);
        waiting.or_insert_with(|| (party, BTreeSet::new())).1.insert(id);
    }

    /// Removes the run `id` of `party`, if it is queued.
    pub(super) fn remove(&mut self, door: &Door, party: Party, id: u64) {
        let Some(members) = self.groups.get_mut(&party.group()) else { return };
        let Some((turn, runs)) = members.parties.get_mut(&party) else { return };
        let Some(parties) = members.doors.get_mut(door) else { return };
        let Some((_, ids)) = parties.get_mut(turn) else { return };
        if !ids.remove(&id) {
            return;
        }
        *runs -= 1;
        if ids.is_empty() {
            parties.remove(turn);
        }
        if parties.is_empty() {
            members.doors.remove(door);
        }
        if *runs == 0 {
            members.parties.remove(&party);
        }
        if members.parties.is_empty() {
            self.order.remove(&members.turn);
            self.groups.remove(&party.group());
        }
    }

    /// Notes that `party` had its turn. The next one of it and of its group is `turn`, which is larger than any turn so far.
    pub(super) fn pass(&mut self, party: Party, turn: u64) {
        let Some(members) = self.groups.get_mut(&party.group()) else { return };
        self.order.remove(&members.turn);
        self.order.insert(turn, party.group());
        members.turn = turn;
        let Some((of_party, _)) = members.parties.get_mut(&party) else { return };
        let before = std::mem::replace(of_party, turn);
        for parties in members.doors.values_mut() {
            if let Some(waiting) = parties.remove(&before) {
                parties.insert(turn, waiting);
            }
        }
    }

    /// The next run, the party whose turn it is, and the door: of the first group that has one, the first party, and of its
    /// doors the one with the lowest `last`, the turn in which it last let a run in. Only doors that are open for the group
    /// count, and parties that `may` start a run there.
    pub(super) fn next(
        &self,
        is_open: impl Fn(&Door, Group) -> bool,
        may: impl Fn(&Door, Party) -> bool,
        last: impl Fn(&Door) -> u64,
    ) -> Option<(u64, Party, Door)> {
        self.order.values().find_map(|group| {
            let open = self.groups.get(group)?.doors.iter().filter(|(door, _)| is_open(door, *group));
            // Few parties may not start a run, so few are skipped.
            let next = open.filter_map(|(door, parties)| {
                let (turn, (party, runs)) = parties.iter().find(|(_, (party, _))| may(door, *party))?;
                let first = *runs.first()?;
                Some(((*turn, last(door), first), *party, door))
            });
            let ((.., id), party, door) = next.min_by_key(|(order, ..)| *order)?;
            Some((id, party, door.clone()))
        })
    }

    /// Each group, with the doors at which it waits.
    pub(super) fn doors(&self) -> impl Iterator<Item = (Group, &Door)> {
        self.groups.iter().flat_map(|(group, members)| members.doors.keys().map(move |door| (*group, door)))
    }

    /// The runs that callers wait for at `door`, in the order of their turns, once for each process.
    pub(super) fn awaited(&self, door: &Door) -> Vec<u64> {
        let members = self.order.values().filter_map(|group| self.groups.get(group));
        let parties = members.filter_map(|members| members.doors.get(door)).flat_map(BTreeMap::values);
        let peers = parties.filter(|(party, _)| matches!(party, Party::Peer(_)));
        peers.flat_map(|(_, runs)| runs).copied().collect()
    }

    /// Whether a run of another group waits.
    fn has_other_group(&self, group: Group) -> bool {
        self.groups.len() > usize::from(self.groups.contains_key(&group))
    }

    /// Whether a run of another party of the same group waits.
    fn has_other_party(&self, party: Party) -> bool {
        let members = self.groups.get(&party.group());
        members
            .is_some_and(|members| members.parties.len() > usize::from(members.parties.contains_key(&party)))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.groups.is_empty()
    }
}

/// The started runs of the first class, whose parties have shares of the slots. A share applies only while others wait:
/// a group has three quarters of the slots while another group waits, and a party three quarters of what its group
/// may have while another party of it waits.
#[derive(Debug, Default)]
pub(super) struct Shares {
    groups: HashMap<Group, usize>,
    parties: HashMap<Party, usize>,
}

impl Shares {
    pub(super) fn start(&mut self, party: Party) {
        *self.groups.entry(party.group()).or_default() += 1;
        *self.parties.entry(party).or_default() += 1;
    }

    pub(super) fn finish(&mut self, party: Party) {
        decrease(&mut self.groups, &party.group());
        decrease(&mut self.parties, &party);
    }

    /// Why no run of `group` starts now; `None`: it has less than its share of `slots`.
    pub(super) fn refuse_group(&self, group: Group, slots: usize, line: &Line) -> Option<Cause> {
        let most = of_group(group, slots, line);
        let running = self.groups.get(&group).copied().unwrap_or_default();
        (running >= most).then_some(Cause::UidShare { runs: running })
    }

    /// Why no run of `party` starts now, whose group has less than its share.
    pub(super) fn refuse_party(&self, party: Party, slots: usize, line: &Line) -> Option<Cause> {
        let of_group = of_group(party.group(), slots, line);
        let running = self.parties.get(&party).copied().unwrap_or_default();
        let has_share = running >= (of_group * 3).div_ceil(4) && line.has_other_party(party);
        has_share.then_some(Cause::ProcessShare { runs: running })
    }
}

fn of_group(group: Group, slots: usize, line: &Line) -> usize {
    if line.has_other_group(group) { (slots * 3 / 4).max(1) } else { slots }
}

fn decrease<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    let Some(count) = counts.get_mut(key) else { return };
    *count = count.saturating_sub(1);
    if *count == 0 {
        counts.remove(key);
    }
}
