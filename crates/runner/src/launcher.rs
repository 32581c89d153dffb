//! Starts a launcher, talks to it, and ends it. No other file of the broker starts processes.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{io::AsyncReadExt as _, net::UnixStream, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::live::{LiveRun, LiveRuns};
use crate::launch::{Instruction, LauncherReport, end_session, end_tree};

/// How long the result of a run waits for the end of its processes after they were killed.
const REAP: Duration = Duration::from_secs(1);
/// How long a launcher has to end them. It gives up sooner, after five seconds.
const KILL_TIMEOUT: Duration = Duration::from_secs(6);

/// A launcher that runs.
#[derive(Debug)]
pub(super) struct Launcher {
    child: Child,
    control: UnixStream,
    /// A part of a report that has arrived.
    received: Vec<u8>,
    /// No process of the run is left, or what is left may live on.
    is_done: bool,
    live: LiveRun,
}

impl Launcher {
    /// Starts a launcher, which starts its plugin. Blocks while the kernel reads its file.
    ///
    /// # Errors
    ///
    /// The error of the kernel.
    pub(super) fn start(mut command: Command, live: &LiveRuns) -> io::Result<Self> {
        // What can fail comes first: a launcher that has started must be ended and reaped.
        let (control, launchers) = StdUnixStream::pair()?;
        control.set_nonblocking(true)?;
        let control = UnixStream::from_std(control)?;
        command.stdin(Stdio::from(OwnedFd::from(launchers))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let starting = live.start();
        let child = command.spawn().map_err(|error| {
            let launcher = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot start the launcher {launcher}: {error}"))
        })?;
        let live = starting.started(child.id());
        let received = Vec::with_capacity(LauncherReport::LENGTH);
        let launcher = Self { child, control, received, is_done: false, live };
        launcher.instruct(Instruction::Start);
        Ok(launcher)
    }

    /// Its process id.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Cancelled when a request of the run is refused.
    pub(super) fn refused(&self) -> CancellationToken {
        self.live.refused()
    }

    /// The read ends of the plugin's output, once.
    pub(super) fn output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.child.stdout.take().zip(self.child.stderr.take())
    }

    /// Waits for the next report; `None`: the launcher has ended. Cancel safe.
    pub(super) async fn report(&mut self) -> Option<LauncherReport> {
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

    /// A launcher reads each instruction at once, so there is room for it. If it has ended, nothing can be said to it.
    ///
    /// Not a write of the runtime, which refuses one until it has polled the new connection.
    pub(super) fn instruct(&self, instruction: Instruction) {
        let _unheard = rustix::io::write(&self.control, &[instruction.byte()]);
        if instruction == Instruction::End {
            // The plugin may have stopped its launcher.
            let _continued = kill_process(Pid::from_child(&self.child), Signal::CONT);
        }
    }

    /// Ends the run in one of two ways, and reaps the launcher. Waits a bounded time; the rest continues without a caller.
    pub(super) async fn end(mut self, instruction: Instruction, tasks: &TaskTracker) {
        if self.is_done {
            tasks.spawn_blocking(move || self.reap());
            return;
        }
        self.instruct(instruction);
        let reaping = tasks.clone();
        let ended = tasks.spawn(async move {
            let ended = async { while !self.is_done && self.report().await.is_some() {} };
            let in_time = timeout(KILL_TIMEOUT, ended).await.is_ok();
            let reaped = reaping.spawn_blocking(move || {
                self.overpower(in_time);
                self.reap();
            });
            drop(reaped.await);
        });
        // A process in uninterruptible sleep ends when it wakes.
        let _late = timeout(REAP, ended).await;
    }

    /// Kills the processes of a launcher that did not: it was killed, or it does not get to run. It is not reaped yet, so
    /// its number and its session are its own.
    fn overpower(&self, has_ended: bool) {
        let launcher = Pid::from_child(&self.child);
        match (self.is_done, has_ended) {
            (true, _) => {}
            (false, true) => end_session(launcher),
            (false, false) => end_tree(launcher),
        }
    }

    /// Waits for the end of the launcher. Nothing else reaps it.
    fn reap(mut self) {
        drop(self.control);
        drop(self.child.wait());
        drop(self.live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runtime of this test polls no connection before the test waits for something.
    #[tokio::test]
    async fn an_instruction_arrives_at_once() {
        #[expect(clippy::disallowed_methods, reason = "a program in the place of the launcher")]
        let command = Command::new("cat");
        let mut launcher = Launcher::start(command, &LiveRuns::default()).unwrap();
        launcher.instruct(Instruction::Terminate);
        let (mut stdout, _stderr) = launcher.output().unwrap();
        launcher.reap();
        let mut read = String::new();
        io::Read::read_to_string(&mut stdout, &mut read).unwrap();
        assert_eq!(read, "ST");
    }
}
