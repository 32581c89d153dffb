//! Which entry gives way, and how many are looked at for it.

use super::*;
use crate::Caller;

/// Entries of a test, by number.
struct Entries {
    bounds: Bounds,
    held: Vec<Option<Arc<KeyEntry>>>,
}

fn number(entry: &KeyEntry) -> usize {
    let (number, _) = entry.spec.key.0.split_first_chunk().unwrap();
    usize::try_from(u64::from_be_bytes(*number)).unwrap()
}

fn at(millis: u64) -> Now {
    let boot = Duration::from_millis(millis);
    Now { wall: std::time::SystemTime::UNIX_EPOCH + boot, boot }
}

impl Entries {
    fn new(entries: usize, bytes: usize) -> Self {
        Self { bounds: Bounds::new(EntryLimits { entries, bytes }), held: Vec::new() }
    }

    /// A new entry of `party` at `now`, and the numbers of those that give way. It is idle afterwards.
    fn add(&mut self, party: Party, bytes: usize, now: u64) -> Result<Vec<usize>, Full> {
        let result = self.add_in_use(party, bytes, now);
        if result.is_ok() {
            self.leave(self.held.len() - 1);
        }
        result
    }

    fn add_in_use(&mut self, party: Party, bytes: usize, now: u64) -> Result<Vec<usize>, Full> {
        let new = self.held.len();
        let mut spec = crate::tests::spec("");
        spec.key.0[..8].copy_from_slice(&(new as u64).to_be_bytes());
        // The variables of a caller make an entry the uid's; a credential counts for the broker's.
        let sent = if party.is_some() { bytes } else { 0 };
        spec.caller_env.insert(String::new(), "x".repeat(sent));
        let peer = party.map_or(Caller::BROKER, |uid| u64::from(uid) << 32 | 1);
        let entry = Arc::new(KeyEntry::new(spec, peer, at(now)));
        entry.credential.store(bytes - sent, Ordering::Relaxed);
        assert_eq!((entry.party, entry.bytes()), (party, bytes));
        self.bounds.add(&entry);
        self.bounds.enter(&entry);
        self.held.push(Some(entry));
        let mut gone = Vec::new();
        while let Some(full) = self.bounds.exceeded() {
            let Some(victim) = self.bounds.victim(full, party, at(now)) else {
                self.remove(new);
                return Err(full);
            };
            gone.push(number(&victim));
            self.remove(number(&victim));
        }
        Ok(gone)
    }

    fn leave(&mut self, number: usize) {
        self.bounds.leave(self.held[number].as_ref().unwrap());
    }

    fn remove(&mut self, number: usize) {
        self.bounds.remove(&self.held[number].take().unwrap());
    }

    fn touch(&self, number: usize, now: u64) {
        self.held[number].as_ref().unwrap().touch(Caller::BROKER, at(now));
    }

    fn of(&self, party: Party) -> usize {
        self.held.iter().flatten().filter(|entry| entry.party == party).count()
    }

    /// The times at which the entries are listed.
    fn listed(&self) -> Vec<Option<u64>> {
        self.held.iter().map(|entry| Some(entry.as_ref()?.listed.load(Ordering::Relaxed))).collect()
    }
}

const A: Party = Some(1000);
const B: Party = Some(1001);
const C: Party = Some(0);

#[test]
fn the_least_recently_used_entry_of_the_uid_with_the_most_gives_way() {
    let mut entries = Entries::new(6, 1 << 20);
    for (party, now) in [(A, 1), (A, 2), (B, 3), (A, 4), (A, 5), (C, 6)] {
        assert_eq!(entries.add(party, 1, now), Ok(vec![]));
    }
    assert_eq!(entries.add(B, 1, 7), Ok(vec![0]));
    entries.touch(1, 8); // an answer from memory
    assert_eq!(entries.add(A, 1, 9), Ok(vec![3]), "its own, which was used before the first");
    assert_eq!(entries.add(B, 1, 10), Ok(vec![2]), "its own: A does not have more");
    assert_eq!(entries.add(C, 1, 11), Ok(vec![4]));
}

#[test]
fn a_uid_below_its_fair_part_loses_nothing_while_another_makes_ten_times_the_bound() {
    for (entries, bytes) in [(100, 1 << 20), (1 << 20, 100 * 7)] {
        let mut entries = Entries::new(entries, bytes);
        for now in 0..33 {
            entries.add(B, 7, now).unwrap();
            entries.add(None, 7, now).unwrap();
        }
        for now in 100..1100 {
            entries.add(A, 7, now).unwrap();
        }
        assert_eq!([A, B, None].map(|party| entries.of(party)), [34, 33, 33]);
        for _ in 0..34 {
            entries.add_in_use(A, 7, 1200).unwrap();
        }
        assert!(entries.add(A, 7, 1201).is_err(), "all that it has are in use");
        assert_eq!([A, B, None].map(|party| entries.of(party)), [34, 33, 33]);
        let first = entries.add(C, 7, 1202);
        assert!(matches!(first.as_deref(), Ok([_])), "a third of the rest is less than B has: {first:?}");
        assert_eq!(entries.of(B), 32);
    }
}

#[test]
fn what_is_idle_gives_way_to_the_same_uid_while_all_of_the_others_is_in_use() {
    let mut entries = Entries::new(4, 1 << 20);
    for now in 0..3 {
        entries.add_in_use(A, 1, now).unwrap();
    }
    entries.add(B, 1, 3).unwrap();
    assert_eq!(entries.add(B, 1, 4), Ok(vec![3]), "B has less than half");
}

#[test]
fn an_entry_of_the_broker_gives_way_last_and_after_a_minute_without_a_request() {
    let mut entries = Entries::new(3, 1 << 20);
    entries.add(None, 0, 0).unwrap();
    entries.add(None, 0, 1).unwrap();
    entries.add(A, 1, 2).unwrap();
    assert_eq!(entries.add(None, 0, 59_999), Ok(vec![2]));
    assert_eq!(entries.add(A, 1, 59_999), Err(Full::Entries(3)));
    assert_eq!(entries.add(A, 1, 60_000), Ok(vec![0]));
}

#[test]
fn what_grows_and_what_is_in_use_counts() {
    let mut entries = Entries::new(10, 100);
    for now in 0..3 {
        entries.add(A, 20, now).unwrap();
    }
    let grows = Arc::clone(entries.held[2].as_ref().unwrap());
    for (bytes, exceeded) in [(40, None), (41, Some(Full::Bytes(100))), (30, None)] {
        entries.bounds.resize(&grows, bytes);
        assert_eq!(entries.bounds.exceeded(), exceeded, "{bytes}");
    }
    assert_eq!(entries.add(B, 20, 5), Ok(vec![0]));
    assert_eq!(entries.add_in_use(B, 101, 6), Err(Full::Bytes(100)), "more than there may be");
    assert_eq!(entries.of(None) + entries.of(A) + entries.of(B), entries.bounds.total.entries);
    for number in 0..entries.held.len() {
        if entries.held[number].is_some() {
            entries.remove(number);
        }
    }
    assert!(entries.bounds.parties.is_empty() && entries.bounds.total.bytes == 0);
}

#[test]
fn the_cost_of_room_does_not_grow_with_the_entries() {
    let most = |count: usize, in_use: bool, is_touched: bool| {
        let mut entries = Entries::new(count, 1 << 30);
        for number in 0..count {
            entries.add_in_use(A, 1, number as u64).unwrap();
            if !in_use || number % 2 == 0 {
                entries.leave(number);
            }
        }
        if is_touched {
            (0..count).for_each(|number| entries.touch(number, 1_000_000 + number as u64));
        }
        // What is looked at and was used since it was listed is listed again.
        let looked_at = (0..100).map(|number| {
            let before = entries.listed();
            assert_eq!(entries.add(B, 1, 2_000_000 + number).unwrap().len(), 1);
            let listed = entries.listed();
            1 + before
                .iter()
                .zip(&listed)
                .filter(|(before, after)| after.is_some() && before != after)
                .count()
        });
        looked_at.max().unwrap()
    };
    for (in_use, is_touched, bound) in [(false, false, 1), (true, false, 1), (false, true, LOOKED_AT + 1)] {
        assert!(most(200, in_use, is_touched) <= bound);
        assert_eq!(most(20_000, in_use, is_touched), most(2_000, in_use, is_touched));
    }
}

#[test]
fn the_broker_is_not_root() {
    assert_ne!(crate::entry::uid(Caller::BROKER), 0);
}
