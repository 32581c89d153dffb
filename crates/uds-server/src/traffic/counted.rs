//! What a connection has in progress. Each value counts itself while it exists.

use std::sync::{Arc, atomic::Ordering};

use bytes::{Buf, Bytes};

use super::{Traffic, millis};
use crate::{places::TooManyBytes, process::coarse};

/// Limit of bytes of unfinished requests.
pub(super) const UNFINISHED: usize = 2 << 20;

/// A call in progress, from its headers to the end of its response.
#[derive(Debug)]
pub(crate) struct Call(Arc<Traffic>);

impl Call {
    pub(crate) fn of(traffic: &Arc<Traffic>) -> Self {
        traffic.begun.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(traffic))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.idle_since.store(millis(coarse()), Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

/// Response bytes that the peer has not read.
#[derive(Debug)]
pub(crate) struct Unsent {
    bytes: Bytes,
    /// The bytes that only this answer holds. Answers from memory share theirs with the cache.
    own: usize,
    traffic: Arc<Traffic>,
}

impl Unsent {
    pub(crate) fn new(bytes: Bytes, traffic: &Arc<Traffic>) -> Self {
        traffic.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        let own = if bytes.is_unique() { bytes.len() } else { 0 };
        if own > 0 {
            traffic.holding.add(own);
        }
        Self { bytes, own, traffic: Arc::clone(traffic) }
    }

    /// Splits off the first `count` bytes. The total does not change.
    pub(crate) fn split_to(&mut self, count: usize) -> Self {
        // The rest keeps the whole block in memory, so it keeps the count.
        let bytes = self.bytes.split_to(count.min(self.bytes.len()));
        Self { bytes, own: 0, traffic: Arc::clone(&self.traffic) }
    }
}

impl Buf for Unsent {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.traffic.take(count);
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.traffic.take(self.bytes.len());
        }
        if self.own > 0 {
            self.traffic.holding.sub(self.own);
        }
    }
}

/// Bytes of an unfinished request.
#[derive(Debug)]
pub(crate) struct Unfinished {
    bytes: usize,
    traffic: Arc<Traffic>,
}

impl Unfinished {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        Self { bytes: 0, traffic: Arc::clone(traffic) }
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Increases the size to `bytes`.
    ///
    /// # Errors
    ///
    /// The limit of the connection, of its process or of its uid that is exceeded.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), TooManyBytes> {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        self.traffic.holding.add(more);
        if self.traffic.unfinished.fetch_add(more, Ordering::Relaxed) + more > UNFINISHED {
            return Err(TooManyBytes { name: "unfinished requests", limit: UNFINISHED });
        }
        self.traffic.check_bytes()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.traffic.unfinished.fetch_sub(self.bytes, Ordering::Relaxed);
        self.traffic.holding.sub(self.bytes);
    }
}
