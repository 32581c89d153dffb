//! Supervises one run, from the start of its plugin to the end of its processes.

use std::{future::pending, io, os::unix::process::ExitStatusExt as _, sync::Arc};

use rustix::process::Signal;
use tokio::{net::unix::pipe::Receiver, time::sleep};
use zeroize::Zeroizing;

use crate::{
    error::{RunError, RunErrorKind},
    launch::Instruction,
    output::{Capped, Stderr, TooLarge},
    plugin_file::find,
    process::{Invocation, Run, RunEnd, RunnerParts},
};
use credbroker_plugin::{FileError, Sandbox};

/// The bytes of stderr that an error shows.
const SHOWN: usize = 2 << 10;
/// What the stderr of a plugin has that tried to use a terminal: the path of its terminal, or the message of ENOTTY.
const TERMINAL: [&str; 2] = ["/dev/tty", "nappropriate ioctl for device"];

/// Runs the plugin and returns what it printed. Ends all of its processes; in the compatible sandbox, those that outlive a
/// success live on. Dropping the future kills them.
pub(crate) async fn supervise(invocation: Invocation<'_>) -> Result<Zeroizing<Vec<u8>>, RunError> {
    let Invocation { parts: RunnerParts { limits, .. }, spec, attendance, .. } = &invocation;
    let (mut run, (stdout, stderr)) = match Run::start(&invocation).await {
        Ok(started) => started,
        Err(cause) => return Err(not_started(&invocation, cause).await),
    };
    let (mut stdout, refused) = (Capped::new(stdout, limits.stdout), run.refused.clone());
    attendance.started(&spec.provider);
    let mut stderr = Stderr::new(stderr, Arc::clone(attendance));
    let mut watched = tokio::select! {
        biased; // a plugin that writes without end must not starve the other branches
        limit = attendance.used_up() => RunEnd::TimedOut(limit),
        end = run.next() => end,
        () = refused.cancelled() => RunEnd::Recursion,
        () = overflow(&mut stdout, &mut stderr) => RunEnd::TooLarge,
    };
    match watched {
        RunEnd::Exited(_) => {
            let more = tokio::select! {
                biased;
                () = sleep(limits.stdout_grace) => Ok(()),
                end = end_of_stdout(&mut stdout, &mut stderr) => end,
            };
            watched = more.map_or(RunEnd::TooLarge, |()| watched);
        }
        RunEnd::Recursion | RunEnd::TimedOut(_) => {
            // The answer to a plugin that calls the broker is on its way, and most of them end with it.
            if let RunEnd::TimedOut(_) = watched {
                run.terminate();
            }
            tokio::select! {
                biased;
                () = sleep(limits.terminate_grace) => {}
                () = async { while let RunEnd::Stopped = run.next().await {} } => {}
                () = overflow(&mut stdout, &mut stderr) => {}
            }
        }
        RunEnd::Lost | RunEnd::Stopped | RunEnd::TooLarge => {}
    }
    let is_success = matches!(watched, RunEnd::Exited(status) if status.success());
    let may_leave = is_success && spec.provider.sandbox == Sandbox::Compatible && !refused.is_cancelled();
    run.end(if may_leave { Instruction::Leave } else { Instruction::End }).await;
    stderr.drain_now();
    tracing::debug!(ended = ?watched, "plugin ended");
    let end = if refused.is_cancelled() { RunEnd::Recursion } else { watched };
    let stderr: Arc<str> = attendance.last_lines(SHOWN).into();
    // A run has no terminal: it cannot open one, and its standard input is not one.
    let names_terminal = TERMINAL.iter().any(|words| stderr.contains(words));
    let stdout = stdout.into_bytes();
    let kind = match end {
        RunEnd::Exited(status) => match status.code() {
            Some(_) if names_terminal && stdout.trim_ascii().is_empty() => RunErrorKind::NeedsTerminal,
            Some(0) => return Ok(stdout),
            Some(code) => RunErrorKind::Exit(code),
            // Without an exit code, a signal ended the process.
            None => RunErrorKind::Signal(status.signal().unwrap_or_default()),
        },
        RunEnd::Lost => RunErrorKind::Signal(Signal::KILL.as_raw()),
        RunEnd::Recursion => RunErrorKind::Recursion,
        RunEnd::Stopped => RunErrorKind::NeedsTerminal,
        RunEnd::TimedOut(limit) => attendance.timed_out(limit),
        RunEnd::TooLarge => RunErrorKind::OutputTooLarge(limits.stdout),
    };
    Err(RunError { stderr, ..RunError::of(spec, kind) })
}

/// Why the kernel did not start it.
async fn not_started(Invocation { spec, plugin, .. }: &Invocation<'_>, cause: io::Error) -> RunError {
    let kind = match cause.kind() {
        io::ErrorKind::ArgumentListTooLong => RunErrorKind::ArgumentsTooLong(plugin.size()),
        io::ErrorKind::TimedOut => RunErrorKind::Unanswered,
        // A missing interpreter of a script gives the same error.
        io::ErrorKind::NotFound if matches!(find(&spec.file).await, Err(FileError::NotFound)) => {
            return RunError::no_file(spec, FileError::NotFound);
        }
        _ => RunErrorKind::Spawn(cause.into()),
    };
    RunError::of(spec, kind)
}

/// Reads both pipes until stdout exceeds its limit; never returns if it does not.
async fn overflow(stdout: &mut Capped<Receiver>, stderr: &mut Stderr<Receiver>) {
    if let Ok(()) = end_of_stdout(stdout, stderr).await {
        stderr.drain().await;
        pending::<()>().await;
    }
}

/// Reads both pipes until stdout ends. The end of stderr is not an event.
async fn end_of_stdout(stdout: &mut Capped<Receiver>, stderr: &mut Stderr<Receiver>) -> Result<(), TooLarge> {
    tokio::select! {
        biased;
        end = stdout.fill() => end,
        () = async { stderr.drain().await; pending().await } => Ok(()),
    }
}
