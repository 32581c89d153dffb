//! Who sends a request.

use std::sync::Arc;

use credbroker_plugin::access::Principal;

/// The client at the other end of a connection, as a listener has identified it.
#[derive(Debug)]
pub struct Caller {
    /// What access rules say something about.
    pub principal: Principal,
    /// Its process ID, where the kernel tells it.
    pub pid: Option<u32>,
    /// The access rule that its handle was given out under. `None`: it has no handle, or there was no rule.
    pub rule: Option<Arc<str>>,
}
