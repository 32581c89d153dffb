//! Few entries and few bytes: some entries give way when a caller asks for another key.

use std::{collections::BTreeMap, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use super::{
    driver::World,
    fleet::is_made,
    keys::{Content, KeyModel, Reading},
    model::Model,
};
use crate::{
    CacheError, EntryLimits, Failed, Full,
    entry::{KeyEntry, Party},
};

/// An entry of the broker that was idle for so long may give way, less the precision of its clock.
const IDLE: Duration = Duration::from_secs(59);
/// The same to the millisecond.
const EVICTABLE_AFTER: Duration = Duration::from_secs(60);

/// How much there may be.
pub(super) fn entry_limits(capacity: Option<(usize, usize)>) -> EntryLimits {
    match capacity {
        Some((entries, bytes)) => EntryLimits { entries, bytes },
        None => EntryLimits::for_tests(2000),
    }
}

/// All entries at one moment.
struct Census(Vec<Counted>);

struct Counted {
    entry: Arc<KeyEntry>,
    bytes: usize,
    is_idle: bool,
    /// The time since the last request.
    unused: Duration,
}

/// Entries and bytes.
type Held = [usize; 2];
const ENTRIES: usize = 0;
const BYTES: usize = 1;
const BOUNDS: [usize; 2] = [ENTRIES, BYTES];

impl Census {
    /// What each party has, with one entry more that counts `new`.
    fn held(&self, new: Option<&KeyEntry>) -> BTreeMap<Party, Held> {
        let mut held = BTreeMap::<_, Held>::new();
        let entries = self.0.iter().map(|counted| (counted.entry.party, counted.bytes));
        for (party, bytes) in entries.chain(new.map(|entry| (entry.party, entry.bytes()))) {
            let held = held.entry(party).or_default();
            *held = [held[0] + 1, held[1] + bytes];
        }
        held
    }

    /// Whether `counted` gives way at one of `bounds` for an entry of `newcomer`, where the parties have `held`.
    fn gives_way(
        counted: &Counted,
        newcomer: Party,
        held: &BTreeMap<Party, Held>,
        limits: Held,
        bounds: &[usize],
    ) -> bool {
        let party = counted.entry.party;
        let of_broker = held.get(&None).copied().unwrap_or_default();
        let uids = held.keys().flatten().count();
        let has_more = |bound: usize| {
            let own = held.get(&party).map_or(0, |held| held[bound]);
            own * uids > limits[bound].saturating_sub(of_broker[bound])
        };
        counted.is_idle
            && match party {
                Some(_) => party == newcomer || bounds.iter().any(|bound| has_more(*bound)),
                None => counted.unused >= EVICTABLE_AFTER,
            }
    }
}

impl World {
    fn census(&self) -> Census {
        let now = self.cache.now();
        let entries = self.cache.lock().after(None, None, usize::MAX);
        let counted = entries.into_iter().map(|entry| Counted {
            bytes: entry.bytes(),
            is_idle: !entry.is_in_use() && !entry.is_running(),
            unused: entry.idle(now),
            entry,
        });
        Census(counted.collect())
    }

    /// The answer of `call`, which a caller in `peer` begins for `key`, and which may need room.
    pub(super) async fn with_room<T>(
        &self,
        key: usize,
        peer: u64,
        call: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let mut call = pin!(call);
        let first = poll_fn(|context| {
            Poll::Ready(self.judge_room(key, peer, || match call.as_mut().poll(context) {
                Poll::Ready(answer) => answer.map(Some),
                Poll::Pending => Ok(None),
            }))
        });
        match first.await {
            Ok(None) => call.await,
            Ok(Some(answer)) => Ok(answer),
            Err(failed) => Err(failed),
        }
    }

    /// What `enter` returns, which makes an entry for `key` if there is none. Checks what gives way for it.
    pub(super) fn judge_room<T>(
        &self,
        key: usize,
        peer: u64,
        enter: impl FnOnce() -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        if self.scene.capacity.is_none() {
            return enter();
        }
        let spec = self.catalog.spec(key);
        let new = KeyEntry::new(spec, peer, self.cache.now());
        let before = self.census();
        let limits = *self.limits.lock().unwrap();
        let answer = enter();
        let after = self.census();
        let refusal = answer.as_ref().err().map(|failed| &failed.error);
        if let Some(broken) = judge(&new, &before, &after, refusal, limits) {
            self.model.lock().unwrap().broken(|| format!("for key {key} of {:?}: {broken}", new.party));
        }
        answer
    }
}

fn judge(
    new: &KeyEntry,
    before: &Census,
    after: &Census,
    refusal: Option<&CacheError>,
    limits: EntryLimits,
) -> Option<String> {
    let limits = [limits.entries, limits.bytes];
    let full = match refusal {
        Some(CacheError::Full(Full::Entries(_))) => Some(ENTRIES),
        Some(CacheError::Full(Full::Bytes(_))) => Some(BYTES),
        _ => None,
    };
    let is_in = |census: &Census| census.0.iter().any(|counted| counted.entry.spec.key == new.spec.key);
    let was_there = is_in(before);
    let stays = |counted: &&Counted| after.0.iter().any(|other| Arc::ptr_eq(&other.entry, &counted.entry));
    let (_, lost): (Vec<_>, Vec<_>) = before.0.iter().partition(stays);
    if was_there {
        return (!lost.is_empty() || full.is_some())
            .then(|| "something gives way for an entry that is there".into());
    }
    // Without a new entry, more may be held than the bounds allow: credentials of entries in use may have grown.
    if matches!(refusal, Some(CacheError::Retired(_))) {
        let changes = !lost.is_empty() || is_in(after);
        return changes
            .then(|| "something gives way for a provider that is retired, or it has an entry".into());
    }
    let held = before.held(Some(new));
    let total =
        |held: &BTreeMap<Party, Held>, bound: usize| held.values().map(|held| held[bound]).sum::<usize>();
    let exceeded: Vec<_> = BOUNDS.into_iter().filter(|bound| total(&held, *bound) > limits[*bound]).collect();
    if let Some(bound) = full {
        let held = after.held(Some(new));
        // A uid that has more than its part of the other bound, but not of this one, loses nothing.
        let gives_way = |counted: &&Counted| Census::gives_way(counted, new.party, &held, limits, &[bound]);
        let idle = after.0.iter().find(gives_way);
        return match idle {
            _ if exceeded.is_empty() => Some("refused, and there is room".into()),
            Some(idle) => Some(format!("refused, and {} is idle", idle.entry.spec.key)),
            None => None,
        };
    }
    let now = after.held(None);
    if let Some(bound) = BOUNDS.into_iter().find(|bound| total(&now, *bound) > limits[*bound]) {
        return Some(format!("{} of {} are held", total(&now, bound), limits[bound]));
    }
    if exceeded.is_empty() && !lost.is_empty() {
        return Some("something gives way although there is room".into());
    }
    let gives_way = |counted: &&&Counted| Census::gives_way(counted, new.party, &held, limits, &exceeded);
    let wrong = lost.iter().find(|counted| !gives_way(counted));
    if let Some(wrong) = wrong {
        return Some(format!("{} of {:?} gives way", wrong.entry.spec.key, wrong.entry.party));
    }
    if let [lost] = &*lost
        && lost.entry.party.is_some()
    {
        let bound = usize::from(total(&held, 0) <= limits[0]);
        let has = |counted: &Counted| held[&counted.entry.party][bound];
        let of_uids = before.0.iter().filter(|counted| counted.is_idle && counted.entry.party.is_some());
        if of_uids.map(has).max() > Some(has(lost)) {
            return Some(format!("{} gives way, and another uid has more", lost.entry.spec.key));
        }
    }
    let is_older = |kept: &Counted, lost: &Counted| {
        kept.is_idle && kept.entry.party == lost.entry.party && kept.unused > lost.unused
    };
    let recent = lost.iter().find(|lost| before.0.iter().filter(stays).any(|kept| is_older(kept, lost)));
    recent.map(|lost| format!("{} gives way, and another was idle for longer", lost.entry.spec.key))
}

impl Model {
    /// A caller asks for `key`, or, if `None`, a run ends, whose credential may be larger, or something is evicted. If there is
    /// no room, other entries give way, and after a run also its own if no caller uses it.
    pub(super) fn evicts_for(&mut self, key: Option<usize>) {
        if self.scene.capacity.is_none() {
            return;
        }
        let now = self.now();
        for (index, other) in self.keys.iter_mut().enumerate().filter(|(index, _)| Some(*index) != key) {
            let is_idle = now.boot.saturating_sub(other.last_used.0) >= IDLE || is_made(index);
            if is_idle && !other.is_in_use(now) {
                (other.back_off_since, other.attempts) = (None, 0);
                if !matches!(other.content, Content::Nothing) {
                    other.content = Content::Unsure;
                }
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
