//! The started runs, and whether there is room for more.

use std::{collections::HashMap, sync::Arc};

use super::{
    gate::Class,
    lane::Party,
    pace::RunRecord,
    share::{RunShares, Shares},
};

/// The started runs.
#[derive(Debug)]
pub(super) struct Slots {
    /// How many runs may wait for a person at a time.
    pub(super) interactive: usize,
    pub(super) shares: Shares,
    pub(super) started: HashMap<u64, StartedRun>,
    /// The started runs that wait for a person, which do not count among the others.
    pub(super) aside: HashMap<u64, StartedRun>,
    /// The number of started background runs.
    pub(super) background: usize,
}

/// A started run.
#[derive(Debug)]
pub(super) struct StartedRun {
    pub(super) issuer: Arc<str>,
    pub(super) party: Party,
    pub(super) class: Class,
    pub(super) run: RunRecord,
}

impl Slots {
    pub(super) fn new(runs: usize) -> Self {
        let unlimited = RunShares { per_uid: usize::MAX, per_process: usize::MAX };
        Self {
            interactive: 0,
            shares: Shares::new(unlimited, runs.max(1)),
            started: HashMap::new(),
            aside: HashMap::new(),
            background: 0,
        }
    }

    /// Whether there is room for a run.
    pub(super) fn has_room(&self) -> bool {
        self.started.len() < self.shares.runs
    }

    /// Whether a background run may start. If there are two slots or more, one is reserved for runs that a caller waits
    /// for.
    pub(super) fn has_room_for_background(&self) -> bool {
        self.shares.runs == 1 || self.background + 1 < self.shares.runs
    }

    /// Adds a started run. Returns whether its party has its share now.
    pub(super) fn start(&mut self, id: u64, started: StartedRun) -> bool {
        let has_share = self.shares.start(started.party);
        self.background += usize::from(started.class == Class::Background);
        self.started.insert(id, started);
        has_share
    }

    /// Counts a started run among those that wait for a person, if there is room for it. Returns the run, and whether its
    /// party had its share.
    pub(super) fn step_aside(&mut self, id: u64) -> Option<(&mut StartedRun, bool)> {
        if self.aside.len() >= self.interactive {
            return None;
        }
        let started = self.started.remove(&id)?;
        let had_share = self.free(&started);
        Some((self.aside.entry(id).insert_entry(started).into_mut(), had_share))
    }

    /// Removes a started run. Returns also whether its party had its share.
    pub(super) fn finish(&mut self, id: u64) -> Option<(StartedRun, bool)> {
        let Some(started) = self.started.remove(&id) else { return Some((self.aside.remove(&id)?, false)) };
        let had_share = self.free(&started);
        Some((started, had_share))
    }

    fn free(&mut self, started: &StartedRun) -> bool {
        self.background -= usize::from(started.class == Class::Background);
        self.shares.finish(started.party)
    }
}
