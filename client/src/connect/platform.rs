//! What differs between operating systems.

#[cfg(target_os = "linux")]
use super::linux as system;
#[cfg(not(target_os = "linux"))]
use super::portable as system;

pub(crate) use system::Directory;
pub(super) use system::{maps_every_user, peer_uid};

/// A system call, made only where it decides.
pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
