//! Starts launchers, talks to them, and ends them. No other file of the broker starts processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Write as _},
    os::unix::{net::UnixStream as StdUnixStream, process::ExitStatusExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncReadExt as _,
    net::{UnixStream, unix::pipe},
    runtime::Handle,
    sync::oneshot,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::{
    Attendance, RunBudget,
    live::{LiveRun, LiveRuns},
};
use crate::{
    launch::{Instruction, Order, Report, end_session, end_tree},
    plugin::Sandbox,
};

/// How long the result of a run waits for the end of its processes after they were killed.
const REAP: Duration = Duration::from_secs(1);
/// How long a launcher has to end them. It gives up sooner, after five seconds.
const OVERPOWER: Duration = Duration::from_secs(6);
/// How long a start may take: the kernel reads the file, which may be on a mount that does not respond.
const START: Duration = Duration::from_secs(5);

/// A plugin to start. Not `Debug`: its environment may contain secrets.
pub(super) struct Invocation<'a> {
    /// The program that supervises the plugin: this one.
    pub(super) launcher: &'a Path,
    pub(super) sandbox: Sandbox,
    pub(super) program: &'a Path,
    pub(super) args: &'a [String],
    pub(super) environment: BTreeMap<OsString, OsString>,
    pub(super) directory: &'a Path,
    /// A file that exists if the plugin asks the broker for the credential that it must provide.
    pub(super) marker: &'a Arc<Path>,
    pub(super) budget: RunBudget,
    pub(super) attendance: &'a Arc<Attendance>,
    /// Owns the start and the end, so that a drain waits for them.
    pub(super) tasks: &'a TaskTracker,
    pub(super) live: &'a LiveRuns,
}

/// What a launcher says about its plugin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The plugin has ended.
    Ended(ExitStatus),
    /// The launcher was killed.
    Lost,
    /// The kernel stopped the plugin because it used a terminal.
    Stopped,
}

/// A plugin that runs, and all of its descendants. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Run {
    /// `None`: it has ended.
    launcher: Option<Launcher>,
    tasks: TaskTracker,
}

/// The read ends of the plugin's output.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
}

impl Run {
    /// Starts the plugin.
    ///
    /// # Errors
    ///
    /// The error of the kernel for the plugin, or for its launcher.
    pub(super) async fn start(invocation: &Invocation<'_>) -> io::Result<(Self, Pipes)> {
        let late = |_elapsed| io::Error::from(io::ErrorKind::TimedOut);
        timeout(START, Self::start_in_time(invocation)).await.map_err(late)?
    }

    async fn start_in_time(invocation: &Invocation<'_>) -> io::Result<(Self, Pipes)> {
        let command = command(invocation);
        let (live, tasks) = (invocation.live.clone(), invocation.tasks.clone());
        let (sender, started) = oneshot::channel();
        invocation.tasks.spawn_blocking(move || {
            if let Err(Ok(unwanted)) = sender.send(spawn(command, &live)) {
                unwanted.abandon();
            }
        });
        let Spawned { mut child, control, live } = started.await.map_err(io::Error::other)??;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let launcher = Launcher::new(child, control, live)?;
        let mut run = Self { launcher: Some(launcher), tasks };
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(io::Error::other("no pipes")); // both are configured
        };
        let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
        let pipes = Pipes { stdout, stderr: pipe::Receiver::from_owned_fd(stderr.into())? };
        match run.report().await {
            Some(Report::Started(pid)) => tracing::debug!(pid, "plugin started"),
            Some(Report::Refused(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            _ => return Err(io::Error::other("its launcher ended before it started the plugin")),
        }
        Ok((run, pipes))
    }

    /// Waits for the next event of the plugin. Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            match self.report().await {
                Some(Report::Ended(status)) => return Event::Ended(ExitStatus::from_raw(status)),
                Some(Report::Stopped) => return Event::Stopped,
                Some(_) => {}
                None => return Event::Lost,
            }
        }
    }

    /// Asks the plugin's process group to end.
    pub(super) fn terminate(&self) {
        if let Some(launcher) = &self.launcher {
            launcher.instruct(Instruction::Terminate);
        }
    }

    /// Kills what is left of the run, and waits for it.
    pub(super) async fn end(mut self) {
        if let Some(launcher) = self.launcher.take() {
            launcher.end(Instruction::End, &self.tasks).await;
        }
    }

    /// Ends the run, and leaves the processes alone that the plugin has left behind.
    pub(super) async fn leave(mut self) {
        if let Some(launcher) = self.launcher.take() {
            launcher.end(Instruction::Leave, &self.tasks).await;
        }
    }

    async fn report(&mut self) -> Option<Report> {
        self.launcher.as_mut()?.report().await
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(launcher) = self.launcher.take() else { return };
        // Without a runtime this process ends; its end closes the connection, and the launcher ends the run.
        if let Ok(runtime) = Handle::try_current() {
            let tasks = self.tasks.clone();
            self.tasks.spawn_on(async move { launcher.end(Instruction::End, &tasks).await }, &runtime);
        }
    }
}

/// A launcher that runs.
#[derive(Debug)]
struct Launcher {
    child: Child,
    control: UnixStream,
    /// A part of a report that has arrived.
    received: Vec<u8>,
    /// No process of the run is left, or what is left may live on.
    is_done: bool,
    live: LiveRun,
}

impl Launcher {
    fn new(child: Child, control: StdUnixStream, live: LiveRun) -> io::Result<Self> {
        control.set_nonblocking(true)?;
        let control = UnixStream::from_std(control)?;
        Ok(Self { child, control, received: Vec::with_capacity(Report::LENGTH), is_done: false, live })
    }

    /// Waits for the next report; `None`: the launcher has ended. Cancel safe.
    async fn report(&mut self) -> Option<Report> {
        loop {
            if let Some(bytes) = self.received.first_chunk() {
                let report = Report::from_bytes(*bytes);
                self.received.clear();
                self.is_done |= matches!(report, Some(Report::Gone | Report::Refused(_)));
                return report;
            }
            let missing = Report::LENGTH - self.received.len();
            let read = (&mut self.control).take(missing as u64).read_buf(&mut self.received).await;
            if !matches!(read, Ok(1..)) {
                return None;
            }
        }
    }

    /// A launcher reads each instruction at once, so there is room for it. If it has ended, nothing can be said to it.
    fn instruct(&self, instruction: Instruction) {
        let _unheard = self.control.try_write(&[instruction.byte()]);
        if instruction == Instruction::End {
            // The plugin may have stopped its launcher.
            let _continued = kill_process(Pid::from_child(&self.child), Signal::CONT);
        }
    }

    /// Ends the run in one of two ways, and reaps the launcher. Waits a bounded time; the rest continues without a caller.
    async fn end(mut self, instruction: Instruction, tasks: &TaskTracker) {
        if self.is_done {
            tasks.spawn_blocking(move || self.reap());
            return;
        }
        self.instruct(instruction);
        let reaping = tasks.clone();
        let ended = tasks.spawn(async move {
            let ended = async { while !self.is_done && self.report().await.is_some() {} };
            let in_time = timeout(OVERPOWER, ended).await.is_ok();
            let reaped = reaping.spawn_blocking(move || {
                self.overpower(in_time);
                self.reap();
            });
            drop(reaped.await);
        });
        // A process in uninterruptible sleep ends when it wakes.
        let _late = timeout(REAP, ended).await;
    }

    /// Kills the processes of a launcher that did not: it was killed, or it does not get to run.
    fn overpower(&self, has_ended: bool) {
        let launcher = Pid::from_child(&self.child);
        match (self.is_done, has_ended) {
            (true, _) => {}
            (false, true) => end_session(launcher),
            // Its end of the connection is open, so the id is still its own.
            (false, false) => end_tree(launcher),
        }
    }

    /// Waits for the end of the launcher. Where orphans are reaped, it may be reaped already.
    fn reap(mut self) {
        drop(self.control);
        drop(self.child.wait());
        drop(self.live);
    }
}

/// A launcher that was started, and has not started its plugin.
struct Spawned {
    child: Child,
    control: StdUnixStream,
    live: LiveRun,
}

impl Spawned {
    /// Ends the launcher of a run that no caller waits for.
    fn abandon(mut self) {
        drop(self.control);
        drop(self.child.wait());
        drop(self.live);
    }
}

fn command(invocation: &Invocation<'_>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the place that starts launchers")]
    let mut command = Command::new(invocation.launcher);
    command
        .args(Order::arguments(invocation.sandbox, invocation.budget.unattended))
        .arg(invocation.program)
        .args(invocation.args)
        .env_clear()
        .envs(&invocation.environment)
        .current_dir(invocation.directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts a launcher. Blocks while the kernel reads its file.
fn spawn(mut command: Command, live: &LiveRuns) -> io::Result<Spawned> {
    let (mut control, launchers) = StdUnixStream::pair()?;
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(launchers)));
    let started = command.spawn();
    let child = started.map_err(|error| {
        let launcher = command.get_program().display();
        io::Error::new(error.kind(), format!("cannot start the launcher {launcher}: {error}"))
    })?;
    let live = live.add(child.id());
    // The kernel has room for one byte; if the launcher has ended, its reports end too.
    let _unheard = control.write_all(&[Instruction::Start.byte()]);
    Ok(Spawned { child, control, live })
}
