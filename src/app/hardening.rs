//! Protects the broker's memory from other processes of the same uid, such as plugins.

use rustix::{
    fs::Mode,
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask},
};
use tracing::warn;

/// Disables core dumps, ptrace and `/proc/PID/mem`, makes files of plugins private, keeps the descriptors of the parent
/// from plugins, and raises the limit of descriptors.
///
/// A failure is logged and not fatal: then the broker is as protected as the process that started it.
pub fn harden() {
    umask(Mode::RWXG | Mode::RWXO);
    close_fds::set_fds_cloexec(3, &[]);
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!(%error, "cannot disable tracing; processes of the same uid can read the broker's memory");
    }
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        warn!(%error, "cannot disable core dumps; one may contain secrets");
    }
    let descriptors = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: descriptors.maximum, ..descriptors };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of open files; it bounds the number of connections");
    }
}
