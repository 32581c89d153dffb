//! What a launcher does to itself before it starts a plugin. The plugin inherits all of it.

use std::{
    fs, io,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::{
    fs::Mode,
    process::{Pid, Resource, Rlimit, getpid, getrlimit, setrlimit, setsid, umask},
};
use signal_hook::consts::{
    FORBIDDEN, SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1,
    SIGUSR2,
};

use super::protocol::Order;
use crate::linux;
use credbroker_plugin::Sandbox;

/// The limits of each process of a run besides its processor time: no core dump, open files, and the bytes of a file.
/// Address space is not limited: the runtimes of Go, Node and Java reserve gigabytes that they do not use.
const LIMITS: [(Resource, u64); 3] =
    [(Resource::Core, 0), (Resource::Nofile, 1024), (Resource::Fsize, 64 << 20)];
/// Where memory runs out, the kernel ends the plugin first, and not the broker, which holds the credentials of others.
const OOM_SCORE: &str = "1000";
/// The seconds between SIGXCPU and SIGKILL.
const PROCESSOR_GRACE: u64 = 5;

pub(super) struct Confined {
    /// Readable after a child has changed its state.
    pub(super) children: UnixStream,
    /// The limits before, for processes that outlive the run.
    lifted: Vec<(Resource, Rlimit)>,
    /// The score before, for the same processes.
    oom_score: Option<String>,
}

/// Confines this process and all that it will start. An error: the kernel refuses a part without which no plugin may run.
pub(super) fn confine(order: &Order) -> io::Result<Confined> {
    linux::adopt_orphans()?;
    setsid()?;
    // Later descriptors are closed on exec anyway.
    close_fds::set_fds_cloexec(3, &[]);
    umask(Mode::RWXG | Mode::RWXO);
    let oom_score = oom_score();
    set_oom_score(getpid(), OOM_SCORE);
    let mut lifted = Vec::new();
    let processor_time = (Resource::Cpu, order.processor_time);
    for (resource, most) in LIMITS.into_iter().chain([processor_time]) {
        lifted.push((resource, getrlimit(resource)));
        limit(resource, most, order.sandbox)?;
    }
    if order.sandbox == Sandbox::Strict {
        linux::forbid_new_privileges()?;
    }
    Ok(Confined { children: restore_signals()?, lifted, oom_score })
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
            linux::set_limit(pid, *resource, *before);
        }
        if let Some(before) = &self.oom_score {
            set_oom_score(pid, before);
        }
    }
}

/// Makes the plugin start with the default disposition of each signal, and the launcher survive those that end others.
///
/// A signal that is ignored stays ignored across exec, and one with a handler gets its default back. So the launcher
/// handles each ignored signal. The standard library empties the signal mask of each child, and restores SIGPIPE.
///
/// Returns a socket that is readable after a child has changed its state.
fn restore_signals() -> io::Result<UnixStream> {
    let caught = Arc::new(AtomicBool::new(false));
    let ending = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2];
    let ignored = ignored_signals().into_iter().filter(|signal| !ending.contains(signal));
    for signal in ending.into_iter().chain(ignored) {
        let is_possible = ![SIGCHLD, SIGPIPE].contains(&signal) && !FORBIDDEN.contains(&signal);
        if is_possible {
            // The C library keeps two signals for itself.
            let _kept = signal_hook::flag::register(signal, Arc::clone(&caught));
        }
    }
    let (children, ended) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGCHLD, ended)?;
    children.set_nonblocking(true)?;
    Ok(children)
}

/// How early the kernel ends this process where memory runs out, relative to others; `None`: it does not say.
fn oom_score() -> Option<String> {
    fs::read_to_string("/proc/self/oom_score_adj").ok()
}

/// Sets the same for the process `pid`, if the kernel allows it.
fn set_oom_score(pid: Pid, score: &str) {
    let _unchanged = fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), score);
}

/// The signals that this process ignores; all signals where the kernel does not say.
fn ignored_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}
