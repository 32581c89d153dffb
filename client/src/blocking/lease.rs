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
    v1::{DepositOutputRequest, Lease},
};
use rustix::{
    buffer::spare_capacity,
    io::{Errno, ioctl_fionbio, read},
    process::{Pid, Signal, kill_process},
    stdio::{stderr, stdin},
};

/// How often the plugin is looked at. A person types more slowly.
pub(super) const GLANCE: Duration = Duration::from_millis(50);
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
            sleep(GLANCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::yield_now;

    use super::*;

    /// What a shell script prints, and how it ends.
    fn ran(script: &str) -> DepositOutputRequest {
        let command = ["/bin/sh", "-c", script, "name"].map(|word| word.as_bytes().to_vec()).to_vec();
        let environment = vec![b"A=b=c".to_vec(), b"EMPTY=".to_vec()];
        ended(LeasedRun::start(Lease { id: 7, command, environment }))
    }

    fn ended(mut run: LeasedRun) -> DepositOutputRequest {
        loop {
            match run.output() {
                Some(output) => return output,
                None => yield_now(),
            }
        }
    }

    fn text(output: &DepositOutputRequest) -> &str {
        str::from_utf8(&output.stdout).unwrap()
    }

    #[test]
    fn a_plugin_has_the_brokers_variables_and_no_others_and_its_output_is_whole() {
        let output = ran("env | sort; pwd; printf %s \"$0\"");
        let lines: Vec<_> = text(&output).lines().filter(|line| !line.starts_with(['_', 'O', 'S'])).collect();
        assert_eq!(lines, ["A=b=c", "EMPTY=", "PWD=/", "/", "name"]);
        assert_eq!((output.lease_id, output.exit_code), (7, 0));
        let output = ran("head -c 100000 /dev/zero | tr '\\0' x; exit 3");
        assert_eq!((output.stdout.len(), output.exit_code), (100_000, 3));
    }

    #[test]
    fn a_signal_and_a_plugin_that_cannot_be_started_have_the_exit_codes_of_shells() {
        assert_eq!(ran("kill -9 $$").exit_code, 128 + 9);
        let command = vec![b"/nonexistent".to_vec()];
        let output = ended(LeasedRun::start(Lease { id: 7, command, environment: Vec::new() }));
        assert_eq!((output.exit_code, output.stdout.len()), (NOT_STARTED, 0));
    }

    #[test]
    fn a_plugin_that_prints_without_end_is_asked_to_end() {
        let output = ran("yes");
        assert!(output.exit_code > 128, "SIGTERM or SIGPIPE: {}", output.exit_code);
        assert!(output.stdout.len() > LEASED_OUTPUT && output.stdout.len() < 2 * LEASED_OUTPUT);
    }

    #[test]
    fn a_run_that_is_not_needed_is_asked_to_end_and_cleans_up() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cleaned");
        let script =
            format!("trap 'touch {}; exit' TERM; echo ready; while :; do sleep 0.01; done", file.display());
        let command = ["/bin/sh", "-c", &script].map(|word| word.as_bytes().to_vec()).to_vec();
        let mut run = LeasedRun::start(Lease { id: 7, command, environment: Vec::new() });
        while run.stdout.is_empty() {
            assert!(run.output().is_none());
        }
        drop(run);
        assert!(file.exists());
    }

    #[test]
    fn a_process_that_is_left_behind_delays_the_output_by_some_looks() {
        let output = ran("echo out; sleep 5 &");
        assert_eq!((text(&output), output.exit_code), ("out\n", 0));
    }
}
