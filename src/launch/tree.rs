//! The descendants of a process.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
};

use rustix::process::{Pid, Signal, getpid, kill_process};

/// How often newly forked processes are looked for before what was found is killed.
const SWEEPS: usize = 100;

/// A process, as `/proc` shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct TreeProcess {
    pid: Pid,
    parent: Option<Pid>,
    session: Option<Pid>,
}

/// The descendants of `root`, the youngest generation last. None if `/proc` is not readable.
///
/// Zombies are included: a process whose first thread has ended looks like one, and its other threads go on.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    below(&processes(), root)
}

/// Kills the descendants of `root`, which must be this process or a child of it that is not reaped.
///
/// They are stopped first, because one that is killed makes room for another under a limit of processes: a fork bomb would
/// outrun the killing. What was stopped can neither fork nor end, so the ids are still those of descendants.
pub(super) fn kill_descendants(root: Pid) {
    let mut stopped = HashSet::new();
    for _ in 0..SWEEPS {
        let found = descendants(root);
        let fresh: Vec<_> = found.into_iter().filter(|pid| stopped.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        for pid in fresh {
            signal(pid, Signal::STOP);
        }
    }
    let found: HashSet<_> = descendants(root).into_iter().collect();
    for pid in &found {
        signal(*pid, Signal::KILL);
    }
    // Between the look and the signal, an id can go to a process that is not a descendant.
    for pid in stopped.difference(&found) {
        signal(*pid, Signal::CONT);
    }
}

/// Kills the launcher `root`, a child of this process that is not reaped, and all of its descendants.
pub fn end_tree(root: Pid) {
    kill_descendants(root);
    signal(root, Signal::KILL);
}

/// Kills the processes in the session of a launcher that has ended, and those below them.
///
/// The kernel does not use the id of a session again while a process is in it.
pub fn end_session(launcher: Pid) {
    let all = processes();
    let in_session = all.iter().filter(|process| process.session == Some(launcher));
    for process in in_session {
        signal(process.pid, Signal::STOP);
        kill_descendants(process.pid);
        signal(process.pid, Signal::KILL);
    }
}

/// Whether the process `pid` is one of `ancestors`, or descends from one. A process that has ended does not.
pub fn is_descendant(pid: u32, ancestors: &[u32]) -> bool {
    let mut seen = HashSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| seen.insert(*pid)) {
        if ancestors.contains(&pid) {
            return true;
        }
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(process);
        next = process.and_then(|process| process.parent?.as_raw_nonzero().get().try_into().ok());
    }
    false
}

/// The ids below `root` in `all`.
fn below(all: &[TreeProcess], root: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            children.entry(parent).or_default().push(process.pid);
        }
    }
    let (mut found, mut parent) = (Vec::new(), Some(root));
    let mut next = 0;
    while let Some(process) = parent {
        // Each process is below one parent, so none is found twice.
        found.extend(children.remove(&process).unwrap_or_default());
        parent = found.get(next).copied();
        next += 1;
    }
    found
}

fn processes() -> Vec<TreeProcess> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    ids.filter_map(process).collect()
}

fn process(pid: Pid) -> Option<TreeProcess> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parsed(&stat)
}

/// One line of `/proc/PID/stat`: the name in parentheses can contain anything, also parentheses.
fn parsed(stat: &[u8]) -> Option<TreeProcess> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let id = |field: &str| Some(Pid::from_raw(field.parse().ok()?));
    let pid = std::str::from_utf8(stat.split(|byte| *byte == b' ').next()?).ok()?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let (_state, parent, _group, session) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    Some(TreeProcess { pid: id(pid)??, parent: id(parent)?, session: id(session)? })
}

/// A process that has ended, or belongs to another user, cannot be signalled.
fn signal(pid: Pid, signal: Signal) {
    if pid != getpid() {
        let _ended: Result<(), io::Error> = kill_process(pid, signal).map_err(Into::into);
    }
}

#[cfg(test)]
mod tests;
