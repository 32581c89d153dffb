//! Few entries: some give way when a caller asks for another key.

use std::time::Duration;

use super::{
    driver::World,
    fleet::is_made,
    keys::{Content, KeyModel, Reading},
    model::Model,
};
use crate::{CacheError, EntryLimits, Failed};

/// An entry that was idle for so long may give way to any other, less the precision of its clock.
const IDLE: Duration = Duration::from_secs(59);

/// How many entries there may be, and how many bytes the variables of callers may have.
pub(super) fn entry_limits(capacity: Option<usize>) -> EntryLimits {
    match capacity {
        Some(total) => {
            EntryLimits { bytes_per_uid: 150, bytes_per_process: 80, ..EntryLimits::for_tests(total) }
        }
        None => EntryLimits::for_tests(2000),
    }
}

impl World {
    /// Only a full cache refuses a key.
    pub(super) fn judge_room<T>(&self, answer: &Result<T, Failed>) {
        let Err(Failed { error: CacheError::Full(room), .. }) = answer else { return };
        let is_full = self.scene.capacity.is_some_and(|capacity| self.cache.len() >= capacity);
        if !is_full && room.key() == "limits.entries" {
            self.model
                .lock()
                .unwrap()
                .broken(|| format!("there is room for {} keys: {room}", self.cache.len()));
        }
    }
}

impl Model {
    /// A caller asks for `key`. If there is no entry and no room for it, another one gives way.
    pub(super) fn evicts_for(&mut self, key: usize) {
        if self.scene.capacity.is_none() {
            return;
        }
        let now = self.now();
        for (index, other) in self.keys.iter_mut().enumerate().filter(|(index, _)| *index != key) {
            let is_idle = now.boot.saturating_sub(other.last_used.0) >= IDLE || is_made(index);
            if is_idle && !other.is_in_use(now) && !matches!(other.content, Content::Nothing) {
                other.content = Content::Unsure;
            }
        }
    }
}

impl KeyModel {
    fn is_in_use(&self, now: Reading) -> bool {
        let leaves = self.last_left.1 == now.awake;
        !leaves && (!self.waiting.is_empty() || !self.watches.is_empty())
    }
}
