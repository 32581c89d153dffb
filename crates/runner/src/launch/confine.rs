//! What a launcher does to itself before it starts a plugin. The plugin inherits all of it.

use std::{fs, io, os::unix::net::UnixStream};

use rustix::{
    fs::Mode,
    process::{
        Pid, Resource, Rlimit, getpid, getrlimit, prlimit, set_child_subreaper, setrlimit, setsid, umask,
    },
    thread::set_no_new_privs,
};

use super::{Order, signals::restore_signals};
use credbroker_plugin::Sandbox;

/// The limits of each process of a run besides its processor time: no core dump, open files, and the bytes of a file.
/// Address space is not limited: the runtimes of Go, Node and Java reserve gigabytes that they do not use.
const LIMITS: [(Resource, u64); 3] =
    [(Resource::Core, 0), (Resource::Nofile, 1024), (Resource::Fsize, 64 << 20)];
/// Where memory runs out, the kernel ends the plugin first, and not the broker, which holds the credentials of others.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// The seconds between SIGXCPU and SIGKILL.
const PROCESSOR_GRACE: u64 = 5;

/// A confined launcher.
pub(super) struct Confined {
    /// Readable after a child has changed its state.
    pub(super) children: UnixStream,
    /// The limits before, for processes that outlive the run.
    lifted: Vec<(Resource, Rlimit)>,
    /// The `oom_score_adj` before, for the same processes.
    oom_score: Option<String>,
}

/// Confines this process and all that it will start.
///
/// # Errors
///
/// The kernel refuses a part without which a plugin must not run.
pub(super) fn confine(order: &Order) -> io::Result<Confined> {
    set_child_subreaper(Some(getpid()))?;
    setsid()?;
    // Later descriptors are closed on exec anyway.
    close_fds::set_fds_cloexec(3, &[]);
    umask(Mode::RWXG | Mode::RWXO);
    let oom_score = fs::read_to_string(OOM_SCORE);
    // The plugin runs without this too.
    let _unchanged = fs::write(OOM_SCORE, "1000");
    let mut lifted = Vec::new();
    let processor_time = (Resource::Cpu, order.processor_time);
    for (resource, most) in LIMITS.into_iter().chain([processor_time]) {
        lifted.push((resource, getrlimit(resource)));
        limit(resource, most, order.sandbox)?;
    }
    if order.sandbox == Sandbox::Strict {
        set_no_new_privs(true)?;
    }
    Ok(Confined { children: restore_signals()?, lifted, oom_score: oom_score.ok() })
}

/// Sets both limits in the strict sandbox, so that no process can raise them, and else the soft limit.
fn limit(resource: Resource, most: u64, sandbox: Sandbox) -> io::Result<()> {
    let before = getrlimit(resource);
    let at_most = |value: u64| Some(before.maximum.map_or(value, |maximum| value.min(maximum)));
    let grace = if resource == Resource::Cpu { PROCESSOR_GRACE } else { 0 };
    let maximum = match (sandbox, resource) {
        (Sandbox::Strict, _) | (_, Resource::Core) => at_most(most + grace),
        (Sandbox::Compatible, _) => before.maximum,
    };
    Ok(setrlimit(resource, Rlimit { current: at_most(most), maximum })?)
}

impl Confined {
    /// Gives a process that outlives its run the limits back. A browser needs more than a plugin.
    pub(super) fn lift(&self, pid: Pid) {
        for (resource, before) in self.lifted.iter().filter(|(resource, _)| *resource != Resource::Core) {
            // It has ended by now, or changed its user.
            let _unchanged = prlimit(Some(pid), *resource, *before);
        }
        if let Some(before) = &self.oom_score {
            let _unchanged = fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), before);
        }
    }
}
