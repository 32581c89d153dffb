//! The functions of `linux.rs` for other systems, on which no plugin runs: what cannot be had is an error, or is not there.

use std::io;

use rustix::process::{Pid, Resource, Rlimit};

pub(crate) fn adopt_orphans() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_limit_of(_pid: Pid, _resource: Resource, _limit: Rlimit) {}

pub(crate) fn oom_score() -> Option<String> {
    None
}

pub(crate) fn set_oom_score(_pid: Pid, _score: &str) {}

pub(crate) fn ignored_signals() -> Vec<i32> {
    (1..=64).collect()
}

pub(crate) fn unmapped_root() -> Option<u32> {
    None
}

pub(crate) fn ended_child() -> Option<u32> {
    None
}

pub(crate) fn reap(_child: u32) -> bool {
    false
}

pub(crate) fn descendants(_root: Pid) -> Vec<Pid> {
    Vec::new()
}

pub(crate) fn kill_descendants(_root: Pid) {}

pub(crate) fn end_session(_launcher: Pid) {}

pub(crate) fn ancestor(_pid: u32, _ancestors: &[u32]) -> Option<u32> {
    None
}

/// It may: nothing shows its files.
pub(crate) fn hold_socket(_ancestors: &[u32]) -> bool {
    true
}
