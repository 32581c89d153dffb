//! Whose run is next.

/// All runs that wait, and how many have started.
#[derive(Debug)]
pub(super) struct Queue {
    _runs: usize,
}

impl Queue {
    pub(super) fn new(runs: usize) -> Self {
        Self { _runs: runs.max(1) }
    }
}
