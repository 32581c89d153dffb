//! How often a collection was listed and watched, and by how many it is watched now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::resource::Collection;
use super::{ApiServer, State};

pub(super) type Counts = BTreeMap<Collection, Count>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    lists: u64,
    watches: u64,
    open: usize,
}

impl ApiServer {
    /// How many LIST requests came, each page for itself, however they were answered.
    pub fn lists(&self, of: Collection) -> u64 {
        self.count(of).lists
    }

    /// How many WATCH requests came, however they were answered.
    pub fn watches(&self, of: Collection) -> u64 {
        self.count(of).watches
    }

    /// How many watches are running.
    pub fn open_watches(&self, of: Collection) -> usize {
        self.count(of).open
    }

    /// Waits until so many watches are running. Panics when that takes longer than half a minute.
    pub async fn until_watched(&self, of: Collection, count: usize) {
        let mut counts = self.state.counts.subscribe();
        let reached = counts.wait_for(|counts| open(counts, of) == count);
        let reached = tokio::time::timeout(Duration::from_secs(30), reached).await.is_ok();
        assert!(reached, "{count} watches of {of:?}: {:?}", self.state.counts.borrow());
    }

    fn count(&self, of: Collection) -> Count {
        self.state.counts.borrow().get(&of).copied().unwrap_or_default()
    }
}

impl State {
    pub(super) fn count_request(&self, of: Collection, watch: bool) {
        self.change_count(of, |count| *if watch { &mut count.watches } else { &mut count.lists } += 1);
    }

    fn change_count(&self, of: Collection, change: impl FnOnce(&mut Count)) {
        self.counts.send_modify(|counts| change(counts.entry(of).or_default()));
    }
}

/// Counts as an open watch for as long as it lives, which is as long as the answer's body does.
#[derive(Debug)]
pub(super) struct OpenWatch {
    state: Arc<State>,
    of: Collection,
}

impl OpenWatch {
    pub(super) fn new(state: &Arc<State>, of: Collection) -> Self {
        state.change_count(of, |count| count.open += 1);
        Self { state: Arc::clone(state), of }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.state.change_count(self.of, |count| count.open -= 1);
    }
}

fn open(counts: &Counts, of: Collection) -> usize {
    counts.get(&of).map_or(0, |count| count.open)
}
