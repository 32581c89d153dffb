//! What keeps other processes of the same uid, plugins above all, from reading the broker's memory.

use rustix::{
    fs::Mode,
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask},
};
use tracing::warn;

/// No core dump, no ptrace and no `/proc/PID/mem` for others; what plugins write is for nobody else; as many
/// descriptors as the hard limit allows.
///
/// A failure is told and not fatal: the broker is then as safe as the process that started it.
pub fn harden() {
    umask(Mode::RWXG | Mode::RWXO);
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!(%error, "processes of the same uid can read the broker's memory");
    }
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        warn!(%error, "a crash may leave secrets in a core dump");
    }
    let descriptors = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: descriptors.maximum, ..descriptors };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "the number of connections is bounded by the soft limit on descriptors");
    }
}
