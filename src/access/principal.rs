//! Who a peer is, as far as rules are concerned.

use std::{path::Path, sync::Arc};

/// The identity of a peer, taken once when its connection is accepted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Principal {
    /// Its uid; `None` if the kernel cannot map it to a user of the broker's user namespace.
    pub uid: Option<u32>,
    /// Its gid; `None` as for `uid`.
    pub gid: Option<u32>,
    /// Its supplementary groups; empty if they are not known, as for a process of another PID namespace.
    pub groups: Box<[u32]>,
    /// Path of its executable; `None` if the broker may not read it.
    pub executable: Option<Box<Path>>,
    /// Name of the listener that accepted the connection.
    pub listener: Arc<str>,
    /// Whether it is the broker's own user or root, who are served if there is no rule.
    pub is_owner: bool,
}
