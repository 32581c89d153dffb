//! Runs a plugin in the terminal of this process, as the broker says.

use std::{
    ffi::{OsStr, OsString},
    io::IsTerminal as _,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        process::ExitStatusExt as _,
    },
    process::{Child, ChildStdout, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use credbroker_proto::{
    LEASED_OUTPUT,
    v1alpha1::{DepositOutputRequest, Lease},
};
use rustix::{
    buffer::spare_capacity,
    io::{Errno, ioctl_fionbio, read},
    process::{Pid, Signal, kill_process},
    stdio::{stderr, stdin},
};

/// How often the plugin is looked at. A user types more slowly.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many looks later than the plugin its output may end. Processes that it has left behind may hold it.
const LATE: u8 = 10;
/// The size of a read.
const READ: usize = 4 * 1024;
/// The exit code of shells for a program that cannot be started.
const NOT_STARTED: i32 = 127;

/// A run in the terminal of this process. The plugin is asked to end when it is dropped.
pub(super) struct LeasedRun {
    id: u64,
    /// `None`: the plugin could not be started.
    child: Option<Child>,
    /// `None`: it has ended.
    pipe: Option<ChildStdout>,
    stdout: Vec<u8>,
    exit_code: Option<i32>,
    looks: u8,
}

/// Whether this process has a terminal in which a plugin can run.
pub(super) fn has_terminal() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

impl LeasedRun {
    /// Starts the plugin with standard input and standard error of this process, and nothing else of it.
    pub(super) fn start(lease: Lease) -> Self {
        let mut words = lease.command.into_iter().map(OsString::from_vec);
        #[expect(clippy::disallowed_methods, reason = "the plugin that the broker leaves to this terminal")]
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env_clear().current_dir("/").stdout(Stdio::piped());
        for variable in &lease.environment {
            let (name, value) =
                variable.split_at(variable.iter().position(|byte| *byte == b'=').unwrap_or_default());
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value.get(1..).unwrap_or_default()));
        }
        let mut child = command.spawn().ok();
        let exit_code = if child.is_some() { None } else { Some(NOT_STARTED) };
        let pipe = child.as_mut().and_then(|child| child.stdout.take());
        // A pipe that blocks would only delay what the broker says.
        let pipe = pipe.filter(|pipe| ioctl_fionbio(pipe, true).is_ok());
        Self { id: lease.id, child, pipe, stdout: Vec::new(), exit_code, looks: 0 }
    }

    /// What the plugin printed, once it has ended. Never waits.
    pub(super) fn output(&mut self) -> Option<DepositOutputRequest> {
        self.read();
        if self.exit_code.is_none() {
            let status = self.child.as_mut()?.try_wait().ok()??;
            self.exit_code = Some(status.code().unwrap_or(128 + status.signal().unwrap_or_default()));
        }
        self.looks += 1;
        if self.pipe.is_some() && self.looks < LATE {
            return None;
        }
        let (stdout, exit_code) = (std::mem::take(&mut self.stdout), self.exit_code?);
        Some(DepositOutputRequest { lease_id: self.id, stdout, exit_code })
    }

    /// Reads what is there. A plugin that prints too much is asked to end; the broker sees it.
    fn read(&mut self) {
        while let Some(pipe) = &self.pipe {
            self.stdout.reserve(READ);
            match read(pipe, spare_capacity(&mut self.stdout)) {
                Ok(1..) if self.stdout.len() <= LEASED_OUTPUT => {}
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                end => {
                    self.pipe = None;
                    if end.is_ok_and(|count| count > 0) {
                        self.terminate();
                    }
                }
            }
        }
    }

    fn terminate(&self) {
        if let (Some(child), None) = (&self.child, self.exit_code) {
            // It may have ended by itself.
            let _sent = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }
}

impl Drop for LeasedRun {
    /// Waits a little for the plugin, which may have to turn the echo of the terminal on again.
    fn drop(&mut self) {
        self.terminate();
        let Some(child) = self.child.as_mut().filter(|_| self.exit_code.is_none()) else { return };
        for _ in 0..LATE {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests;
