//! Runs the program of a user in the place of this one, and waits for its end.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::ExitStatus,
};

use anyhow::Context as _;
use credbroker_plugin::Environment;
use rustix::process::{Pid, kill_process};
use tokio::process::Command;

use crate::app::RelayedSignals;

/// As shells do for a command that is not there, and for one that cannot be run.
const ABSENT: u8 = 127;
const UNUSABLE: u8 = 126;
/// Added to the number of the signal that ended a command.
const SIGNALED: i32 = 128;

/// Runs `command`, not empty, with exactly these variables; returns its exit code as a shell would. SIGTERM and SIGHUP are passed
/// on, and those of a terminal are left to it, so that this process outlives it.
pub(super) fn run(
    command: &[OsString],
    environment: &Environment,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    match runtime.block_on(ended(command, environment)) {
        Ok(status) => Ok(exit_code(status)),
        Err(error) => {
            let name = command.first().map_or(Path::new(""), Path::new).display();
            writeln!(err, "credbroker: cannot run {name}: {error}")?;
            Ok(if error.kind() == io::ErrorKind::NotFound { ABSENT } else { UNUSABLE })
        }
    }
}

async fn ended(command: &[OsString], environment: &Environment) -> io::Result<ExitStatus> {
    let mut signals = RelayedSignals::catch()?;
    let (program, args) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the program that a user asks for, in the place of this one"
    )]
    let mut command = Command::new(program);
    let mut child = command.args(args).env_clear().envs(&environment.0).spawn()?;
    loop {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        tokio::select! {
            status = child.wait() => return status,
            signal = signals.next() => {
                // It is not reaped yet, so its number is still its own.
                if let Some(pid) = pid {
                    let _has_ended = kill_process(pid, signal);
                }
            }
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let signaled = || SIGNALED + status.signal().unwrap_or_default();
    u8::try_from(status.code().unwrap_or_else(signaled)).unwrap_or(u8::MAX)
}
