//! A plugin that runs under its launcher. No other file of the broker starts processes.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncReadExt as _,
    net::{UnixStream, unix::pipe::Receiver},
    runtime::Handle,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    error::RunErrorKind,
    launch::{Instruction, LauncherReport, Order},
    lease::PluginCommand,
    linux,
    live::{LiveRun, LiveRuns},
};
use credbroker_plugin::Provider;

/// How long a start may take: the kernel reads the file, which may be on a mount that does not respond.
const START: Duration = Duration::from_secs(5);
/// How long the result of a run waits for the end of its processes after they were killed.
const REAP: Duration = Duration::from_secs(1);
/// How long a launcher has to end them. It gives up sooner, after five seconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(6);

/// The limits of each run.
#[derive(Clone, Debug)]
pub struct RunLimits {
    /// The most bytes of stdout; one more ends the run.
    pub stdout: usize,
    /// The time before SIGKILL after the SIGTERM of a timeout, and after the refusal of a plugin that calls the broker.
    pub terminate_grace: Duration,
    /// How long the run waits for child processes to close stdout after the plugin has exited.
    pub stdout_grace: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        let (terminate_grace, stdout_grace) = (Duration::from_secs(2), Duration::from_millis(500));
        Self { stdout: 1 << 20, terminate_grace, stdout_grace }
    }
}

/// What plugin runs need.
#[derive(Clone, Debug)]
pub struct RunnerParts {
    /// The limits of each run.
    pub limits: RunLimits,
    /// This program, which is started as the launcher of each plugin.
    pub launcher: PathBuf,
    /// Where each run gets a directory, which is removed after it. An absolute path that no other user can write to.
    pub scratch: PathBuf,
    /// Owns what continues after a run, such as the removal of its directory.
    pub tasks: TaskTracker,
    /// Gets every run.
    pub live: LiveRuns,
}

/// A plugin that runs, and all of its descendants. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Run {
    /// `None`: it is being ended.
    launcher: Option<Launcher>,
    /// Cancelled when the broker refuses a request of one of its processes.
    pub(crate) refused: CancellationToken,
    tasks: TaskTracker,
}

/// The read ends of stdout and stderr.
type Output = (Receiver, Receiver);

impl Run {
    /// Starts a launcher with the `command` of a plugin. An error comes from the kernel, for the plugin or for its launcher.
    pub(crate) async fn start(parts: &RunnerParts, command: Command) -> io::Result<(Self, Output)> {
        let (live, tasks) = (parts.live.clone(), parts.tasks.clone());
        let starting = async {
            // If no caller waits for the start, the run is dropped, which ends it.
            let started = parts.tasks.spawn_blocking(move || {
                let (launcher, output) = Launcher::start(command, &live)?;
                let refused = launcher.live.run.refused.clone();
                io::Result::Ok((Self { launcher: Some(launcher), refused, tasks }, output))
            });
            let (mut run, output) = started.await.map_err(io::Error::other)??;
            match run.report().await {
                Some(LauncherReport::Started(pid)) => tracing::debug!(pid, "plugin started"),
                Some(LauncherReport::Refused(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                _ => return Err(io::Error::other("its launcher ended before it started the plugin")),
            }
            Ok((run, output))
        };
        timeout(START, starting).await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Waits for the end of the plugin. An error: the kernel stopped it because it used a terminal, or it is lost. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<ExitStatus, RunErrorKind> {
        while let Some(report) = self.report().await {
            match report {
                LauncherReport::Ended(status) => return Ok(status),
                LauncherReport::Stopped => return Err(RunErrorKind::NeedsTerminal),
                _ => {}
            }
        }
        // Only a process of this user kills the launcher, such as the plugin, which ends too.
        Err(RunErrorKind::Signal(Signal::KILL.as_raw()))
    }

    pub(crate) fn terminate(&self) {
        if let Some(launcher) = &self.launcher {
            launcher.instruct(Instruction::Terminate);
        }
    }

    /// Kills what is left of the run, or leaves it alone, and waits for the end of the launcher.
    pub(crate) async fn end(mut self, instruction: Instruction) {
        if let Some(launcher) = self.launcher.take() {
            launcher.end(instruction, &self.tasks).await;
        }
    }

    async fn report(&mut self) -> Option<LauncherReport> {
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

#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) child: Child,
    control: UnixStream,
    /// A part of a report that has arrived.
    received: Vec<u8>,
    /// No process of the run is left, or what is left may live on.
    is_done: bool,
    live: LiveRun,
}

impl Launcher {
    /// Starts a launcher, which starts its plugin. Blocks while the kernel reads its file.
    pub(crate) fn start(mut command: Command, live: &LiveRuns) -> io::Result<(Self, Output)> {
        // What can fail comes first: a launcher that has started must be ended and reaped.
        let (control, launchers) = StdUnixStream::pair()?;
        control.set_nonblocking(true)?;
        let control = UnixStream::from_std(control)?;
        let (stdout, to_stdout) = io::pipe()?;
        let (stderr, to_stderr) = io::pipe()?;
        let output = (Receiver::from_owned_fd(stdout.into())?, Receiver::from_owned_fd(stderr.into())?);
        command.stdin(OwnedFd::from(launchers)).stdout(to_stdout).stderr(to_stderr);
        let (live, child) = live.spawn(&mut command).map_err(|error| {
            let launcher = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot start the launcher {launcher}: {error}"))
        })?;
        let received = Vec::with_capacity(LauncherReport::LENGTH);
        let launcher = Self { child, control, received, is_done: false, live };
        launcher.instruct(Instruction::Start);
        Ok((launcher, output))
    }

    /// Waits for the next report; `None`: the launcher has ended. Cancel safe.
    async fn report(&mut self) -> Option<LauncherReport> {
        loop {
            if let Some(bytes) = self.received.first_chunk() {
                let report = LauncherReport::from_bytes(*bytes);
                self.received.clear();
                self.is_done |= matches!(report, Some(LauncherReport::Gone | LauncherReport::Refused(_)));
                return report;
            }
            let missing = LauncherReport::LENGTH - self.received.len();
            let read = (&mut self.control).take(missing as u64).read_buf(&mut self.received).await;
            if !matches!(read, Ok(1..)) {
                return None;
            }
        }
    }

    /// A launcher reads each instruction immediately, so there is room for it. If it has ended, nothing can be said to it.
    ///
    /// Not a write of the runtime, which refuses one until it has polled the new connection.
    fn instruct(&self, instruction: Instruction) {
        let _unheard = rustix::io::write(&self.control, &[instruction as u8]);
        if instruction == Instruction::End {
            // The plugin may have stopped its launcher.
            let _continued = kill_process(Pid::from_child(&self.child), Signal::CONT);
        }
    }

    /// Ends the run in one of two ways, and reaps the launcher. Waits a bounded time; the rest continues without a caller.
    pub(crate) async fn end(mut self, instruction: Instruction, tasks: &TaskTracker) {
        if self.is_done {
            tasks.spawn_blocking(move || self.reap(true));
            return;
        }
        self.instruct(instruction);
        let reaping = tasks.clone();
        let ended = tasks.spawn(async move {
            let ended = async { while !self.is_done && self.report().await.is_some() {} };
            let in_time = timeout(KILL_TIMEOUT, ended).await.is_ok();
            drop(reaping.spawn_blocking(move || self.reap(in_time)).await);
        });
        // A process in uninterruptible sleep ends when it wakes.
        let _late = timeout(REAP, ended).await;
    }

    /// Waits for the end of the launcher, which nothing else reaps. Kills the processes of one that did not: it was killed,
    /// or it does not get to run. It is not reaped yet, so its number and its session are its own.
    fn reap(mut self, has_ended: bool) {
        let launcher = Pid::from_child(&self.child);
        match (self.is_done, has_ended) {
            (true, _) => {}
            (false, true) => linux::end_session(launcher),
            (false, false) => {
                linux::kill_descendants(launcher);
                let _ended = kill_process(launcher, Signal::KILL);
            }
        }
        drop(self.control);
        drop(self.child.wait());
        drop(self.live);
    }
}

pub(crate) fn command(launcher: &Path, provider: &Provider, plugin: &PluginCommand) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the place that starts launchers")]
    let mut command = Command::new(launcher);
    command
        .args(Order::arguments(provider.sandbox, provider.timeout))
        .arg(&plugin.program)
        .args(&plugin.args);
    command.env_clear().envs(&plugin.environment);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runtime of this test polls no connection before the test waits for something.
    #[tokio::test]
    async fn an_instruction_arrives_at_once() {
        #[expect(clippy::disallowed_methods, reason = "a program in the place of the launcher")]
        let command = Command::new("cat");
        let (mut launcher, (mut stdout, _stderr)) = Launcher::start(command, &LiveRuns::default()).unwrap();
        launcher.instruct(Instruction::Terminate);
        launcher.is_done = true;
        launcher.reap(true);
        let mut read = String::new();
        stdout.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "ST");
    }
}
