//! Round robin.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Members that take turns. A new member, and one that had its turn, is the last. Each operation takes O(log n).
#[derive(Debug)]
pub(super) struct Ring<K, V> {
    /// By the number of the turn, which only increases.
    order: BTreeMap<u64, K>,
    members: HashMap<K, (u64, V)>,
}

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self { order: BTreeMap::new(), members: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Ring<K, V> {
    /// The member `key`, which joins at `turn` if it is new. `turn` is larger than any turn so far.
    pub(super) fn join(&mut self, key: &K, turn: u64) -> &mut V {
        let Self { order, members } = self;
        let (_, value) = members.entry(key.clone()).or_insert_with(|| {
            order.insert(turn, key.clone());
            (turn, V::default())
        });
        value
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.members.get(key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.members.get_mut(key).map(|(_, value)| value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Notes that `key` had its turn. Its next one is `turn`, which is larger than any turn so far.
    pub(super) fn pass(&mut self, key: &K, turn: u64) {
        if let Some((at, _)) = self.members.get_mut(key) {
            self.order.remove(at);
            self.order.insert(turn, key.clone());
            *at = turn;
        }
    }

    pub(super) fn leave(&mut self, key: &K) -> Option<V> {
        let (turn, value) = self.members.remove(key)?;
        self.order.remove(&turn);
        Some(value)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.order.values()
    }

    /// The numbers and the members of the next turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = (u64, &K)> {
        self.order.iter().map(|(turn, key)| (*turn, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(ring: &Ring<char, u32>) -> String {
        ring.keys().collect()
    }

    #[test]
    fn members_take_turns() {
        let mut ring = Ring::default();
        for (turn, key) in (1..).zip("abcb".chars()) {
            *ring.join(&key, turn) += 1;
        }
        assert_eq!(order(&ring), "abc", "joining twice changes nothing");
        assert_eq!(ring.get(&'b'), Some(&2));
        ring.pass(&'a', 5);
        assert_eq!((order(&ring).as_str(), ring.turns().next()), ("bca", Some((2, &'b'))));
        assert_eq!(ring.leave(&'c'), Some(1));
        ring.join(&'c', 6);
        assert_eq!(order(&ring), "bac", "a member that returns is the last");
        for key in ['a', 'b', 'c'] {
            ring.leave(&key);
        }
        assert!(ring.is_empty() && ring.turns().next().is_none() && ring.leave(&'a').is_none());
    }
}
