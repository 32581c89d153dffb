//! What only Linux has: `/proc`, process descriptors, adopting orphans, and a wait that reaps nothing. Other systems have
//! the functions of `unsupported.rs` in its place.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use rustix::{
    fs::getxattr,
    io::Errno,
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
        prlimit, set_child_subreaper,
    },
    thread::set_no_new_privs,
};

/// How often newly forked processes are looked for before what was found is killed.
const SWEEPS: usize = 100;
/// The most processes whose open files are looked at.
const MOST: usize = 256;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Process {
    id: ProcessId,
    parent: Option<Pid>,
    session: Option<Pid>,
}

/// A process and no other one that has its number later.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct ProcessId {
    pid: Pid,
    /// When it started, in clock ticks since boot.
    started: u64,
}

impl ProcessId {
    /// Signals it, unless it has ended: another process may have its number by now.
    fn signal(self, signal: Signal) {
        if self.pid == getpid() {
            return;
        }
        let is_same = || process(self.pid).is_some_and(|now| now.id == self);
        // A process that has ended, or belongs to another user, cannot be signaled.
        let _ended = match pidfd_open(self.pid, PidfdFlags::empty()) {
            // What is read now is about the process of the descriptor, or that one has ended.
            Ok(held) if is_same() => pidfd_send_signal(held, signal),
            Ok(_) | Err(Errno::SRCH) => Ok(()),
            // No descriptor is left, and a process that is not killed would be worse.
            Err(_) if is_same() => kill_process(self.pid, signal),
            Err(_) => Ok(()),
        };
    }
}

/// Makes this process the parent of the processes below it whose own parent ends.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Keeps this process and those below it from getting rights by running a program.
pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Sets a limit of the process `pid`, unless it has ended by now or changed its user.
pub(crate) fn set_limit(pid: Pid, resource: Resource, limit: Rlimit) {
    let _unchanged = prlimit(Some(pid), resource, limit);
}

/// Reaps a child of this process that has ended, if it `may` be reaped. Returns whether it did.
pub(crate) fn reap(may: impl Fn(u32) -> bool) -> bool {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    let child = waitid(Id::All, ended | WaitPidFlag::WNOWAIT).ok().and_then(|status| status.pid());
    child.is_some_and(|child| may(child.as_raw().cast_unsigned()) && waitid(Id::Pid(child), ended).is_ok())
}

/// The descendants of `root`, the youngest generation last. None if `/proc` is not readable.
///
/// Zombies are included: a process whose first thread has ended looks like one, and its other threads go on.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    below(&processes(), root).map(|id| id.pid).collect()
}

/// Kills the descendants of `root`, which must be this process or a child of it that is not reaped.
pub(crate) fn kill_descendants(root: Pid) {
    kill(|| below(&processes(), root).collect());
}

/// Kills the processes in the session of a launcher that has ended, and those below them. The launcher must be a child of
/// this process that is not reaped: afterwards, another process can have its number and begin a session with it.
pub(crate) fn end_session(launcher: Pid) {
    kill(|| {
        let all = processes();
        let in_session = all.iter().filter(|process| process.session == Some(launcher));
        in_session.flat_map(|process| below(&all, process.id.pid).chain([process.id])).collect()
    });
}

/// Kills what `find` finds.
///
/// They are stopped first, because one that is killed makes room for another under a limit of processes: a fork bomb would
/// outrun the killing. What was stopped can no longer fork.
fn kill(find: impl Fn() -> Vec<ProcessId>) {
    let mut found = HashSet::new();
    for _ in 0..SWEEPS {
        let fresh: Vec<_> = find().into_iter().filter(|id| found.insert(*id)).collect();
        if fresh.is_empty() {
            break;
        }
        for id in fresh {
            id.signal(Signal::STOP);
        }
    }
    found.extend(find());
    for id in found {
        id.signal(Signal::KILL);
    }
}

/// The one of `ancestors` that the process is, descends from, or has the session of. `None` if it has been reaped.
pub(crate) fn ancestor(pid: u32, ancestors: &[u32]) -> Option<u32> {
    let of = |pid: Option<Pid>| number(pid).filter(|number| ancestors.contains(number));
    let mut seen = HashSet::new();
    let mut next = i32::try_from(pid).ok().and_then(Pid::from_raw);
    while let Some(pid) = next.filter(|pid| seen.insert(*pid)) {
        if let Some(found) = of(Some(pid)) {
            return Some(found);
        }
        let process = process(pid)?;
        // The processes of a launcher that was killed have another parent, and still its session.
        if let Some(found) = of(process.session) {
            return Some(found);
        }
        next = process.parent;
    }
    None
}

/// Whether a process below one of `ancestors` has a Unix stream socket, or files that cannot be looked at.
pub(crate) fn hold_socket(ancestors: &[u32]) -> bool {
    let all = processes();
    let is_ancestor = |pid: Option<Pid>| number(pid).is_some_and(|number| ancestors.contains(&number));
    // By parent and session, as above.
    let roots = all.iter().filter(|process| is_ancestor(process.parent) || is_ancestor(process.session));
    let mut looked_at = HashSet::new();
    for root in roots.filter(|root| !is_ancestor(Some(root.id.pid))) {
        for ProcessId { pid, .. } in below(&all, root.id.pid).chain([root.id]) {
            if looked_at.insert(pid) && (looked_at.len() > MOST || holds_socket(pid)) {
                return true;
            }
        }
    }
    false
}

fn holds_socket(pid: Pid) -> bool {
    let directory = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let open = match fs::read_dir(directory) {
        Ok(open) => open,
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    let may_be_unix = |file: &Path| {
        let is_socket =
            fs::read_link(file).is_ok_and(|link| link.as_os_str().as_bytes().starts_with(b"socket:"));
        let mut protocol = [0; 4];
        // `UNIX` or `UNIX-STREAM`, which does not fit.
        is_socket
            && !matches!(getxattr(file, "system.sockprotoname", &mut protocol), Ok(length) if protocol.get(..length) != Some(b"UNIX"))
    };
    open.filter_map(Result::ok).any(|file| may_be_unix(&file.path()))
}

fn below(all: &[Process], root: Pid) -> impl Iterator<Item = ProcessId> + use<> {
    let mut children: HashMap<Pid, Vec<ProcessId>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            children.entry(parent).or_default().push(process.id);
        }
    }
    let (mut found, mut parent) = (Vec::new(), Some(root));
    let mut next = 0;
    while let Some(process) = parent {
        // Each process is below one parent, so none is found twice.
        found.extend(children.remove(&process).unwrap_or_default());
        parent = found.get(next).map(|id: &ProcessId| id.pid);
        next += 1;
    }
    found.into_iter()
}

fn number(pid: Option<Pid>) -> Option<u32> {
    pid?.as_raw_nonzero().get().try_into().ok()
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    ids.filter_map(process).collect()
}

fn process(pid: Pid) -> Option<Process> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parsed(&stat)
}

/// One line of `/proc/PID/stat`: the name in parentheses can contain anything, also parentheses.
fn parsed(stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    // A process that is being released has the session -1.
    let id = |field: &str| Some(Pid::from_raw(field.parse::<i32>().ok()?.max(0)));
    let pid = std::str::from_utf8(stat.split(|byte| *byte == b' ').next()?).ok()?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let (_state, parent, _group, session) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process { id: ProcessId { pid: id(pid)??, started }, parent: id(parent)?, session: id(session)? })
}

#[cfg(test)]
mod tests;
