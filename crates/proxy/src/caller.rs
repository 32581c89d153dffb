//! Who sends a request.

use credbroker_plugin::access::Principal;

/// The client at the other end of a connection, as a listener has identified it.
#[derive(Debug)]
pub struct Caller {
    /// What access rules say something about.
    pub principal: Principal,
    /// Its process ID, where the kernel tells it.
    pub pid: Option<u32>,
}
