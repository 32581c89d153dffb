//! Starts, watches and ends one process group. No other file starts processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    process::{Child, ChildStderr, ChildStdout, Command},
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::LiveRuns;

/// How often a process is polled if the kernel cannot signal its end.
const GLANCE: Duration = Duration::from_millis(20);
const REAP: Duration = Duration::from_secs(1);
/// How long a start may take: the kernel reads the file, which may be on a mount that does not respond.
const START: Duration = Duration::from_secs(5);
/// The first and the longest pause before a file that is being written is tried again: about a second in all.
const BUSY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(512));

/// A process to start. Not `Debug`: its environment may contain secrets.
pub(super) struct Invocation<'a> {
    pub(super) program: &'a Path,
    pub(super) args: &'a [String],
    pub(super) environment: BTreeMap<OsString, OsString>,
    pub(super) directory: &'a Path,
    /// A file that exists if the plugin asks the broker for the credential that it must provide.
    pub(super) marker: &'a Arc<Path>,
    pub(super) timeout: Duration,
    /// Owns the start, so that a drain waits for it.
    pub(super) tasks: &'a TaskTracker,
    /// Knows the processes of all runs.
    pub(super) live: &'a LiveRuns,
}

/// A process that leads its own group. Dropping it kills the whole group.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    exit: Exit,
}

impl Group {
    pub(super) async fn start(invocation: &Invocation<'_>) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        #[expect(clippy::disallowed_methods, reason = "the one place that starts processes")]
        let mut command = Command::new(invocation.program);
        command
            .args(invocation.args)
            .env_clear()
            .envs(&invocation.environment)
            .current_dir(invocation.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut group = spawn(command, invocation.tasks).await?;
        let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
        tracing::debug!(pid = group.child.id(), "plugin started");
        match (stdout, stderr) {
            (Some(stdout), Some(stderr)) => Ok((group, stdout, stderr)),
            _ => Err(io::Error::other("no pipes")), // both are configured above
        }
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the leader has ended, without reaping it, so that its process id is not reused.
    pub(super) async fn exited(&self) {
        self.exit.happened().await;
    }

    /// Whether the kernel stopped the leader because it read from the terminal, or wrote to it, in the background.
    pub(super) fn is_stopped_at_terminal(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = pid_of(&self.child).map(|pid| waitid(WaitId::Pid(pid), options));
        let Some(Ok(Some(status))) = status else { return false };
        let signal = status.stopping_signal();
        [Signal::TTIN, Signal::TTOU].iter().any(|terminal| signal == Some(terminal.as_raw()))
    }

    /// Until the leader is reaped, no other process or group can have its id.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = pid_of(&self.child)
            && let Err(error) = kill_process_group(pid, signal)
        {
            tracing::debug!(?pid, ?signal, %error, "plugin's process group not signalled");
        }
    }

    /// Kills the rest of the group and reaps the leader.
    pub(super) async fn end(&mut self) -> io::Result<ExitStatus> {
        let group = pid_of(&self.child);
        self.signal(Signal::KILL);
        // A process in uninterruptible sleep ends when it wakes; the runtime reaps it then.
        let ended = timeout(REAP, self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if let Some(group) = group {
            let _late = timeout(REAP, reap_orphans(group)).await;
        }
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Waits for the end of a process without reaping it.
#[derive(Debug)]
enum Exit {
    Descriptor(AsyncFd<OwnedFd>),
    /// Polls, for kernels and sandboxes without process descriptors.
    Glances(Option<Pid>),
}

impl Exit {
    fn of(pid: Option<Pid>) -> Self {
        #[expect(
            deprecated,
            reason = "its successor is unsafe, and an `OwnedFd` is always the same descriptor"
        )]
        let watch = |descriptor| AsyncFd::with_interest(descriptor, Interest::READABLE).ok();
        pid.and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok())
            .and_then(watch)
            .map_or(Self::Glances(pid), Self::Descriptor)
    }

    async fn happened(&self) {
        match self {
            Self::Descriptor(descriptor) => drop(descriptor.readable().await),
            Self::Glances(pid) => {
                while pid.is_some_and(is_running) {
                    sleep(GLANCE).await;
                }
            }
        }
    }
}

fn is_running(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?))
}

/// Reaps the children that the leader left behind. Only the first process of a container inherits them; for any other
/// there is nothing to reap.
async fn reap_orphans(group: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(reaped) = waitid(WaitId::Pgid(Some(group)), options) {
        if reaped.is_none() {
            sleep(GLANCE).await; // killed, but still ending
        }
    }
}

async fn spawn(mut command: Command, tasks: &TaskTracker) -> io::Result<Group> {
    let (mut pause, longest) = BUSY;
    loop {
        let (sender, started) = oneshot::channel();
        tasks.spawn_blocking(move || {
            let started = command.spawn().map(|child| Group { exit: Exit::of(pid_of(&child)), child });
            // If the run is over by now, the group is dropped, and so killed.
            drop(sender.send((command, started)));
        });
        let late = |_elapsed| io::Error::from(io::ErrorKind::TimedOut);
        let (again, started) = timeout(START, started).await.map_err(late)?.map_err(io::Error::other)?;
        match started {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && pause <= longest => {
                command = again;
                sleep(pause).await;
                pause *= 2;
            }
            started => return started,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> Group {
        let args = ["-c", script].map(str::to_owned);
        let invocation = Invocation {
            program: Path::new("/bin/sh"),
            args: &args,
            environment: BTreeMap::new(),
            directory: Path::new("/"),
            marker: &Path::new("/nowhere").into(),
            timeout: Duration::MAX,
            tasks: &TaskTracker::new(),
            live: &LiveRuns::default(),
        };
        Group::start(&invocation).await.unwrap().0
    }

    #[tokio::test]
    async fn only_a_stop_by_the_terminal_counts() {
        for (signal, at_terminal) in [("TTIN", true), ("TTOU", true), ("TSTP", false), ("STOP", false)] {
            let mut group = shell(&format!("kill -{signal} $$; sleep 300")).await;
            let pid = pid_of(&group.child).unwrap();
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            while !matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))) {
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(group.is_stopped_at_terminal(), at_terminal, "{signal}");
            group.end().await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_exit_is_seen_without_reaping_with_and_without_a_process_descriptor() {
        for descriptor in [true, false] {
            let mut group = shell("sleep 0.1; exit 7").await;
            assert!(matches!(group.exit, Exit::Descriptor(_)), "this kernel has process descriptors");
            let pid = pid_of(&group.child).unwrap();
            if !descriptor {
                group.exit = Exit::Glances(Some(pid));
            }
            group.exited().await;
            group.exited().await; // may be called again
            kill_process_group(pid, Signal::KILL).expect("the id is still the leader's");
            assert_eq!(group.end().await.unwrap().code(), Some(7));
            assert_eq!(group.id(), None, "nothing is signalled after this");
        }
    }
}
