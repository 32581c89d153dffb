//! The queued runs of one class of one issuer.

use std::{collections::BTreeSet, sync::Arc};

use super::{ring::Ring, share::Shares};

/// The parties that take turns within a provider.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Party {
    /// The broker: all its runs for a provider together have the share of one caller.
    Broker,
    /// A process whose callers wait.
    Peer(u64),
}

/// Providers take turns, and the callers of a provider take turns. The runs of one caller start in the order of entry.
#[derive(Debug, Default)]
pub(super) struct Lane {
    providers: Ring<Arc<str>, ProviderLane>,
}

#[derive(Debug, Default)]
struct ProviderLane {
    ring: Ring<Party, BTreeSet<u64>>,
    waiting: usize,
}

impl Lane {
    /// Adds the run `id`. `turn` is larger than any turn so far.
    pub(super) fn insert(&mut self, provider: &Arc<str>, caller: Party, id: u64, turn: u64) {
        let callers = self.providers.join(provider, turn);
        callers.waiting += usize::from(callers.ring.join(&caller, turn).insert(id));
    }

    /// Removes the run `id`.
    pub(super) fn remove(&mut self, provider: &Arc<str>, caller: Party, id: u64) {
        let Some(callers) = self.providers.get_mut(provider) else { return };
        let Some(runs) = callers.ring.get_mut(&caller) else { return };
        callers.waiting -= usize::from(runs.remove(&id));
        if runs.is_empty() {
            callers.ring.leave(&caller);
        }
        if callers.ring.is_empty() {
            self.providers.leave(provider);
        }
    }

    /// The number of the next turn, by which lanes are compared; `None`: no run is queued of a party that has less than
    /// its share.
    pub(super) fn next(&self, shares: &Shares) -> Option<u64> {
        self.next_turn(shares).map(|(turn, ..)| turn)
    }

    /// At most a few parties can have their shares at a time, so few are skipped.
    fn next_turn(&self, shares: &Shares) -> Option<(u64, &Arc<str>, Party)> {
        self.providers.turns().find_map(|(turn, provider)| {
            let mut parties = self.providers.get(provider)?.ring.keys();
            let party = parties.find(|party| shares.refuses(**party).is_none())?;
            Some((turn, provider, *party))
        })
    }

    /// Removes and returns the next run. `turn` is larger than any turn so far.
    pub(super) fn take(&mut self, turn: u64, shares: &Shares) -> Option<u64> {
        let (_, provider, caller) = self.next_turn(shares)?;
        let provider = Arc::clone(provider);
        let callers = self.providers.get_mut(&provider)?;
        let id = *callers.ring.get(&caller)?.first()?;
        callers.ring.pass(&caller, turn);
        self.providers.pass(&provider, turn);
        self.remove(&provider, caller, id);
        Some(id)
    }

    /// Removes and returns all runs that a caller waits for.
    pub(super) fn take_waited(&mut self) -> Vec<u64> {
        let providers: Vec<_> = self.providers.keys().cloned().collect();
        let mut ids = Vec::new();
        for provider in providers {
            let Some(callers) = self.providers.get_mut(&provider) else { continue };
            let peers: Vec<_> = callers.ring.keys().copied().filter(|key| *key != Party::Broker).collect();
            for peer in peers {
                let runs = callers.ring.leave(&peer).unwrap_or_default();
                callers.waiting -= runs.len();
                ids.extend(runs);
            }
            if callers.ring.is_empty() {
                self.providers.leave(&provider);
            }
        }
        ids
    }

    /// The number of queued runs of `provider`.
    pub(super) fn waiting(&self, provider: &Arc<str>) -> usize {
        self.providers.get(provider).map_or(0, |callers| callers.waiting)
    }
}
