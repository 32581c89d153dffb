//! The bytes that the broker holds for one uid or one process, over all its connections.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Bytes of one uid or process, and their limit.
#[derive(Debug)]
pub(crate) struct Held {
    name: &'static str,
    limit: usize,
    bytes: AtomicUsize,
}

/// A limit of bytes that is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooManyBytes {
    /// The key of the configuration.
    pub name: &'static str,
    /// Its value.
    pub limit: usize,
}

/// The counts that a connection adds to: those of its process and of its uid.
#[derive(Debug, Default)]
pub(crate) struct HeldCounts(pub(super) Option<[Arc<Held>; 2]>);

impl Held {
    pub(super) fn new(name: &'static str, limit: usize) -> Self {
        Self { name, limit, bytes: AtomicUsize::new(0) }
    }
}

impl HeldCounts {
    pub(crate) fn add(&self, bytes: usize) {
        for held in self.0.iter().flatten() {
            held.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn sub(&self, bytes: usize) {
        for held in self.0.iter().flatten() {
            held.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether the bytes are within their limits.
    ///
    /// # Errors
    ///
    /// The limit that is exceeded.
    pub(crate) fn check(&self) -> Result<(), TooManyBytes> {
        match self.0.iter().flatten().find(|held| held.bytes.load(Ordering::Relaxed) > held.limit) {
            None => Ok(()),
            Some(held) => Err(TooManyBytes { name: held.name, limit: held.limit }),
        }
    }
}
