//! What differs between simulations.

/// One of this many seeds has a thousand keys.
pub(super) const LARGE: u64 = 50;

/// What differs between simulations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// It has a thousand keys, and is short.
    pub(super) is_large: bool,
    /// Few runs at a time, and many requests at a time.
    pub(super) is_crowded: bool,
    pub(super) keys: usize,
    /// The number of entries and of their bytes, if there is no room for all keys.
    pub(super) capacity: Option<(usize, usize)>,
}

impl Scene {
    pub(super) fn of(seed: u64) -> Self {
        let is_large = seed % LARGE == LARGE - 1;
        let is_crowded = !is_large && fastrand::u8(..3) > 0;
        let keys = if is_large { 1000 } else { fastrand::usize(6..36) };
        // A key that a variable selects has about 40 bytes with its credential, another one 7, and many entries have none:
        // sometimes the entries are too many, and sometimes their bytes.
        let capacity = || (keys * 2 / 3, keys * fastrand::usize(3..12));
        let capacity = (!is_large && fastrand::bool()).then(capacity);
        Self { is_large, is_crowded, keys, capacity }
    }

    /// The runs at a time. `concurrency`: of all issuers together. In a crowd there are few, so that processes often have
    /// their shares.
    pub(super) fn slots(&self, concurrency: usize) -> usize {
        if self.is_crowded { fastrand::usize(2..6) } else { concurrency + 1 }
    }
}
