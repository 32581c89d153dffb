//! The functions of `linux.rs` for other systems, on which no plugin runs: what cannot be had is an error, or is not there.

use std::io;

use rustix::{
    io::Errno,
    process::{Pid, Resource, Rlimit},
};

pub(crate) fn adopt_orphans() -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

pub(crate) fn set_limit(_pid: Pid, _resource: Resource, _limit: Rlimit) {}

pub(crate) fn reap(_may: impl Fn(u32) -> bool) -> bool {
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
