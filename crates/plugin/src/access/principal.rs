//! Who a peer is, as far as rules are concerned.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use crate::Origin;

/// The identity of a peer: the one that the kernel recorded when it connected.
#[derive(Debug, Default)]
pub struct Principal {
    /// Its uid; `None` if the kernel cannot map it to a user of the broker's user namespace.
    pub uid: Option<u32>,
    /// Its gid; `None` as for `uid`.
    pub gid: Option<u32>,
    /// The process that connected.
    pub process: Process,
    /// Name of the listener that accepted the connection.
    pub listener: Arc<str>,
    /// Whether it is the broker's own user or root, who are served if there is no rule.
    pub is_owner: bool,
}

/// Facts about the process of a peer. They are read once, when something needs them: that takes longer than the answer to
/// a call, and few calls and rules depend on them.
#[derive(Debug)]
pub struct Process(LazyLock<Facts, Box<dyn FnOnce() -> Facts + Send>>);

/// What can be learned about the process of a peer. The default is a process of which nothing is known.
#[derive(Debug, Default)]
pub struct Facts {
    /// Its supplementary groups; empty if they are not known, as for a process of another PID namespace.
    pub groups: Box<[u32]>,
    /// Path of its executable; `None` if the broker may not read it.
    pub executable: Option<Box<Path>>,
    /// Where it runs.
    pub origin: Origin,
}

impl Process {
    /// A process whose facts `read` returns.
    pub fn new(read: impl FnOnce() -> Facts + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(read)))
    }

    /// The facts. The first call reads them.
    pub fn facts(&self) -> &Facts {
        &self.0
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new(Facts::default)
    }
}
