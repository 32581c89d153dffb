//! The queued runs of one class of one issuer.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{ring::Ring, share::uid};

/// The parties that take turns within a provider.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Party {
    /// The broker: all its runs for a provider together have the share of one caller; those whose keys callers of a uid
    /// made have another one.
    Broker(Option<u32>),
    /// A process whose callers wait.
    Peer(u64),
}

impl Party {
    /// The uid whose turn it takes; `None`: the turn of the broker.
    fn group(self) -> Option<u32> {
        match self {
            Self::Broker(uid) => uid,
            Self::Peer(process) => Some(uid(process)),
        }
    }
}

/// Uids take turns, so that no uid gains by having many processes or by naming many providers; the broker is one of them.
/// Within a uid its providers take turns, and within a provider its processes. The runs of one process start in the order
/// of entry. A run that several callers wait for is queued for each of them.
#[derive(Debug, Default)]
pub(super) struct Lane {
    groups: Ring<Option<u32>, GroupLane>,
    /// By provider: for how many parties each run is queued.
    runs: HashMap<Arc<str>, HashMap<u64, usize>>,
}

type GroupLane = Ring<Arc<str>, ProviderLane>;
type ProviderLane = Ring<Party, BTreeSet<u64>>;

impl Lane {
    /// Adds the run `id` for `party`. `turn` is larger than any turn so far.
    pub(super) fn insert(&mut self, provider: &Arc<str>, party: Party, id: u64, turn: u64) {
        let group = self.groups.join(&party.group(), turn);
        if group.join(provider, turn).join(&party, turn).insert(id) {
            *self.runs.entry(Arc::clone(provider)).or_default().entry(id).or_default() += 1;
        }
    }

    /// Removes the run `id` of `party`, if it is queued.
    pub(super) fn remove(&mut self, provider: &Arc<str>, party: Party, id: u64) {
        let Some(group) = self.groups.get_mut(&party.group()) else { return };
        let Some(lane) = group.get_mut(provider) else { return };
        let Some(runs) = lane.get_mut(&party) else { return };
        if !runs.remove(&id) {
            return;
        }
        if runs.is_empty() {
            lane.leave(&party);
        }
        if lane.is_empty() {
            group.leave(provider);
        }
        if group.is_empty() {
            self.groups.leave(&party.group());
        }
        let Some(runs) = self.runs.get_mut(provider) else { return };
        if let Some(parties) = runs.get_mut(&id) {
            *parties -= 1;
            if *parties == 0 {
                runs.remove(&id);
            }
        }
        if runs.is_empty() {
            self.runs.remove(provider);
        }
    }

    /// The number of the next turn, by which lanes are compared; `None`: no run is queued of a party that `may` start one.
    pub(super) fn next(&self, may: impl Fn(Party) -> bool) -> Option<u64> {
        self.next_turn(may).map(|(turn, ..)| turn)
    }

    /// At most a few parties may not start a run at a time, so few are skipped.
    fn next_turn(&self, may: impl Fn(Party) -> bool) -> Option<(u64, &Arc<str>, Party)> {
        self.groups.turns().find_map(|(turn, group)| {
            let providers = self.groups.get(group)?;
            providers.keys().find_map(|provider| {
                let party = providers.get(provider)?.keys().find(|party| may(**party))?;
                Some((turn, provider, *party))
            })
        })
    }

    /// The next run, and the party whose turn it is. `turn` is larger than any turn so far. [`remove`](Self::remove) the run
    /// then.
    pub(super) fn take(&mut self, turn: u64, may: impl Fn(Party) -> bool) -> Option<(u64, Party)> {
        let (_, provider, party) = self.next_turn(may)?;
        let provider = Arc::clone(provider);
        let group = self.groups.get_mut(&party.group())?;
        let lane = group.get_mut(&provider)?;
        let id = *lane.get(&party)?.first()?;
        lane.pass(&party, turn);
        group.pass(&provider, turn);
        self.groups.pass(&party.group(), turn);
        Some((id, party))
    }

    /// The runs that callers wait for, once for each process.
    pub(super) fn waited(&self) -> Vec<u64> {
        let groups = self.groups.keys().filter_map(|group| self.groups.get(group));
        let lanes = groups.flat_map(|group| group.keys().filter_map(|provider| group.get(provider)));
        let is_peer = |party: &&Party| matches!(party, Party::Peer(_));
        let of_lane = |lane: &ProviderLane| {
            let runs = lane.keys().filter(is_peer).filter_map(|party| lane.get(party));
            runs.flatten().copied().collect::<Vec<_>>()
        };
        lanes.flat_map(of_lane).collect()
    }

    /// The number of queued runs of `provider`.
    pub(super) fn waiting(&self, provider: &Arc<str>) -> usize {
        self.runs.get(provider).map_or(0, HashMap::len)
    }
}
