//! The runs of one class that wait for one issuer.

use std::{collections::BTreeSet, sync::Arc};

use super::ring::Ring;

/// Who takes turns within a provider.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Caller {
    /// The broker itself: all that it wants of a provider is one caller's share.
    Broker,
    /// A caller that waits.
    Peer(u64),
}

/// Turns go round by provider, then by caller; a caller's own runs start in the order in which they entered.
#[derive(Debug, Default)]
pub(super) struct Lane {
    providers: Ring<Arc<str>, Callers>,
}

#[derive(Debug, Default)]
struct Callers {
    ring: Ring<Caller, BTreeSet<u64>>,
    waiting: usize,
}

impl Lane {
    /// Puts the run `id` in. `turn` is above every turn so far.
    pub(super) fn insert(&mut self, provider: &Arc<str>, caller: Caller, id: u64, turn: u64) {
        let callers = self.providers.join(provider, turn);
        callers.waiting += usize::from(callers.ring.join(&caller, turn).insert(id));
    }

    /// Takes the run `id` out.
    pub(super) fn remove(&mut self, provider: &Arc<str>, caller: Caller, id: u64) {
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

    /// The number of the next turn, by which lanes are compared; `None`: nothing waits.
    pub(super) fn next(&self) -> Option<u64> {
        self.providers.next().map(|(turn, _)| turn)
    }

    /// Takes the next run out. `turn` is above every turn so far.
    pub(super) fn take(&mut self, turn: u64) -> Option<u64> {
        let provider = Arc::clone(self.providers.next()?.1);
        let callers = self.providers.get_mut(&provider)?;
        let caller = *callers.ring.next()?.1;
        let id = *callers.ring.get(&caller)?.first()?;
        callers.ring.pass(&caller, turn);
        self.providers.pass(&provider, turn);
        self.remove(&provider, caller, id);
        Some(id)
    }

    /// Takes out every run that a caller waits for.
    pub(super) fn take_waited(&mut self) -> Vec<u64> {
        let providers: Vec<_> = self.providers.keys().cloned().collect();
        let mut ids = Vec::new();
        for provider in providers {
            let Some(callers) = self.providers.get_mut(&provider) else { continue };
            let peers: Vec<_> = callers.ring.keys().copied().filter(|key| *key != Caller::Broker).collect();
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

    /// How many runs of `provider` are here.
    pub(super) fn waiting(&self, provider: &Arc<str>) -> usize {
        self.providers.get(provider).map_or(0, |callers| callers.waiting)
    }
}
