//! The queued runs of one class of one issuer.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::ring::Ring;

/// The parties that take turns within a provider.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Party {
    /// The broker: all its runs for a provider together have the share of one caller; those whose keys callers of a uid
    /// made have another one.
    Broker(Option<u32>),
    /// A process whose callers wait.
    Peer(u64),
}

/// Providers take turns, and the callers of a provider take turns. The runs of one caller start in the order of entry. A run
/// that several callers wait for is queued for each of them.
#[derive(Debug, Default)]
pub(super) struct Lane {
    providers: Ring<Arc<str>, ProviderLane>,
}

#[derive(Debug, Default)]
struct ProviderLane {
    ring: Ring<Party, BTreeSet<u64>>,
    /// For how many parties each run is queued.
    runs: HashMap<u64, usize>,
}

impl Lane {
    /// Adds the run `id` for `party`. `turn` is larger than any turn so far.
    pub(super) fn insert(&mut self, provider: &Arc<str>, party: Party, id: u64, turn: u64) {
        let lane = self.providers.join(provider, turn);
        if lane.ring.join(&party, turn).insert(id) {
            *lane.runs.entry(id).or_default() += 1;
        }
    }

    /// Removes the run `id` of `party`, if it is queued.
    pub(super) fn remove(&mut self, provider: &Arc<str>, party: Party, id: u64) {
        let Some(lane) = self.providers.get_mut(provider) else { return };
        let Some(runs) = lane.ring.get_mut(&party) else { return };
        if !runs.remove(&id) {
            return;
        }
        if runs.is_empty() {
            lane.ring.leave(&party);
        }
        if let Some(parties) = lane.runs.get_mut(&id) {
            *parties -= 1;
            if *parties == 0 {
                lane.runs.remove(&id);
            }
        }
        if lane.ring.is_empty() {
            self.providers.leave(provider);
        }
    }

    /// The number of the next turn, by which lanes are compared; `None`: no run is queued of a party that `may` start one.
    pub(super) fn next(&self, may: impl Fn(Party) -> bool) -> Option<u64> {
        self.next_turn(may).map(|(turn, ..)| turn)
    }

    /// At most a few parties may not start a run at a time, so few are skipped.
    fn next_turn(&self, may: impl Fn(Party) -> bool) -> Option<(u64, &Arc<str>, Party)> {
        self.providers.turns().find_map(|(turn, provider)| {
            let mut parties = self.providers.get(provider)?.ring.keys();
            Some((turn, provider, *parties.find(|party| may(**party))?))
        })
    }

    /// The next run, and the party whose turn it is. `turn` is larger than any turn so far. [`remove`](Self::remove) the run
    /// then.
    pub(super) fn take(&mut self, turn: u64, may: impl Fn(Party) -> bool) -> Option<(u64, Party)> {
        let (_, provider, party) = self.next_turn(may)?;
        let provider = Arc::clone(provider);
        let lane = self.providers.get_mut(&provider)?;
        let id = *lane.ring.get(&party)?.first()?;
        lane.ring.pass(&party, turn);
        self.providers.pass(&provider, turn);
        Some((id, party))
    }

    /// The runs that callers wait for, once for each process.
    pub(super) fn waited(&self) -> Vec<u64> {
        let lanes = self.providers.keys().filter_map(|provider| self.providers.get(provider));
        let is_peer = |party: &&Party| matches!(party, Party::Peer(_));
        let of_lane = |lane: &ProviderLane| {
            let runs = lane.ring.keys().filter(is_peer).filter_map(|party| lane.ring.get(party));
            runs.flatten().copied().collect::<Vec<_>>()
        };
        lanes.flat_map(of_lane).collect()
    }

    /// The number of queued runs of `provider`.
    pub(super) fn waiting(&self, provider: &Arc<str>) -> usize {
        self.providers.get(provider).map_or(0, |lane| lane.runs.len())
    }
}
