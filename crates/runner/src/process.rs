//! A plugin that runs under its launcher.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, ExitStatus},
    sync::Arc,
    time::Duration,
};

use tokio::{net::unix::pipe, runtime::Handle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Attendance, RunBudget, launcher::Launcher, live::LiveRuns};
use crate::launch::{Instruction, LauncherReport, Order};
use credbroker_plugin::Sandbox;

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
    pub(super) budget: RunBudget,
    pub(super) attendance: &'a Arc<Attendance>,
    /// Owns the start and the end, so that a drain waits for them.
    pub(super) tasks: &'a TaskTracker,
    pub(super) live: &'a LiveRuns,
}

/// How a run ended, or what ends it.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunEnd {
    /// The plugin has ended.
    Exited(ExitStatus),
    /// The launcher was killed. Only a process of this user does that, such as the plugin, which ends too.
    Lost,
    /// The broker refused a request of one of its processes.
    Recursion,
    /// The kernel stopped the plugin because it used a terminal.
    Stopped,
    /// It used up this time.
    TimedOut(Duration),
    /// It wrote more than the limit to stdout.
    TooLarge,
}

/// A plugin that runs, and all of its descendants. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Run {
    /// `None`: it has ended.
    launcher: Option<Launcher>,
    refused: CancellationToken,
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
        let (command, live, tasks) = (command(invocation), invocation.live.clone(), invocation.tasks.clone());
        // If no caller waits for the start, the run is dropped, which ends it.
        let started = invocation.tasks.spawn_blocking(move || Self::start_now(command, &live, tasks));
        let (mut run, pipes) = started.await.map_err(io::Error::other)??;
        match run.report().await {
            Some(LauncherReport::Started(pid)) => tracing::debug!(pid, "plugin started"),
            Some(LauncherReport::Refused(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            _ => return Err(io::Error::other("its launcher ended before it started the plugin")),
        }
        Ok((run, pipes))
    }

    /// Blocks while the kernel reads the file of the launcher.
    fn start_now(command: Command, live: &LiveRuns, tasks: TaskTracker) -> io::Result<(Self, Pipes)> {
        let mut launcher = Launcher::start(command, live)?;
        let output = launcher.output();
        let run = Self { refused: launcher.refused(), launcher: Some(launcher), tasks };
        let (stdout, stderr) = output.ok_or_else(|| io::Error::other("no pipes"))?; // both are configured
        let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
        Ok((run, Pipes { stdout, stderr: pipe::Receiver::from_owned_fd(stderr.into())? }))
    }

    /// Waits for the next event of the plugin. Cancel safe.
    pub(super) async fn next(&mut self) -> RunEnd {
        loop {
            match self.report().await {
                Some(LauncherReport::Ended(status)) => return RunEnd::Exited(ExitStatus::from_raw(status)),
                Some(LauncherReport::Stopped) => return RunEnd::Stopped,
                Some(_) => {}
                None => return RunEnd::Lost,
            }
        }
    }

    /// Cancelled when the broker refuses a request of one of its processes.
    pub(super) fn refused(&self) -> CancellationToken {
        self.refused.clone()
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

fn command(invocation: &Invocation<'_>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the place that starts launchers")]
    let mut command = Command::new(invocation.launcher);
    command
        .args(Order::arguments(invocation.sandbox, invocation.budget.unattended))
        .arg(invocation.program)
        .args(invocation.args)
        .env_clear()
        .envs(&invocation.environment)
        .current_dir(invocation.directory);
    command
}
