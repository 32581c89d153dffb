//! Checks once a second what must hold while an issuer works.

use std::time::Duration;

use super::{
    keys::{Content, Reading},
    model::Model,
};

/// The longest back-off.
const BACK_OFF: Duration = Duration::from_secs(61);
/// The time in which a watch must return a new credential: after an error it reconnects in a second.
const DELIVERY: Duration = Duration::from_secs(3);

impl Model {
    pub(super) fn judge_promises(&mut self) {
        let now = self.now();
        self.look();
        self.judge_verifications(now);
        self.judge_runs(now);
        let bounds: Vec<_> = (0..self.issuers.len())
            .map(|issuer| {
                let bound = self.bound(issuer);
                (bound, self.is_healthy(issuer, bound, now))
            })
            .collect();
        // Where runs wait for slots, one issuer that does not work delays those of all, and so does a prompt.
        let is_calm = !self.scene.is_crowded
            || bounds.iter().all(|(bound, healthy)| *healthy && self.started.is_unprompted(*bound, now));
        for index in 0..self.keys.len() {
            let key = &self.keys[index];
            let (bound, healthy) = bounds[key.issuer];
            if healthy && is_calm && !key.watches.is_empty() {
                self.judge_watched(index, bound, now);
            }
            self.judge_delivery(index, now);
        }
    }

    /// A watched key has a credential from the current plugin file, and its refresh is not overdue.
    fn judge_watched(&mut self, index: usize, bound: Duration, now: Reading) {
        let key = &self.keys[index];
        let plugin = &self.catalog.plugins[key.plugin];
        if plugin.asks_persons() || self.gone[key.plugin] {
            return;
        }
        let watched = key.watches.values().map(|watched| watched.since).min().unwrap_or(now.awake);
        let failed = key.failed.map_or(Duration::ZERO, |(_, awake)| awake + BACK_OFF);
        let quiet_since =
            watched.max(failed).max(self.jumped).max(key.evicted).max(self.replaced[key.plugin]);
        if quiet_since + bound > now.awake
            || !key.detached.is_empty()
            || matches!(key.content, Content::Unsure)
        {
            return;
        }
        if matches!(key.content, Content::Held(held) if held.is_valid_at(now) && key.lapsed) {
            return; // a step of the clock made it valid again
        }
        let Some(held) = key.held(now) else {
            return self.broken(|| {
                format!("key {index} is watched, its issuer works, and nothing is held after {bound:?}")
            });
        };
        if held.version != plugin.file.version() {
            return self
                .broken(|| format!("key {index} is watched, and its plugin was replaced {bound:?} ago"));
        }
        if held.has_passed(held.due_in.1 + bound, now) {
            let left = held.left(now);
            self.broken(|| format!("key {index} is watched, and due since {bound:?}; {left:?} are left"));
        }
    }

    /// Each watch has returned the credential that is held.
    fn judge_delivery(&mut self, index: usize, now: Reading) {
        let key = &self.keys[index];
        let Some(held) = key.held(now) else { return };
        let since = held.landed.awake.max(key.evicted).max(self.jumped) + DELIVERY;
        if since > now.awake {
            return;
        }
        let missed = key
            .watches
            .iter()
            .find(|(_, watched)| watched.since + DELIVERY <= now.awake && watched.token != Some(held.token));
        if let Some((watch, watched)) = missed {
            let (watch, token) = (*watch, watched.token);
            self.broken(|| {
                format!("watch {watch} of key {index} returned {token:?} last, and {} is held", held.token)
            });
        }
    }
}
