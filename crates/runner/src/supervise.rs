//! Supervises one run, from the start of its plugin to the end of its processes.

use std::{future::pending, io, sync::Arc, time::Duration};

use tokio::{net::unix::pipe::Receiver, time::sleep};
use zeroize::Zeroizing;

use crate::{
    launch::Instruction,
    output::{Capped, Stderr, TooLarge},
    process::{Invocation, Run, RunEnd},
};
use credbroker_plugin::Sandbox;

/// The bytes of stderr that an error shows.
const SHOWN: usize = 2 << 10;

/// The limits of each run.
#[derive(Clone, Debug)]
pub struct RunLimits {
    /// The most bytes of stdout; one more ends the run.
    pub stdout: usize,
    /// The time between SIGTERM and SIGKILL for a plugin that exceeds its timeout, and between the refusal and SIGKILL for
    /// one that calls the broker.
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

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) end: RunEnd,
    pub(crate) stdout: Zeroizing<Vec<u8>>,
    /// The end of it, sanitised.
    pub(crate) stderr: Arc<str>,
}

/// Runs `invocation` and ends all of its processes; in the compatible sandbox, those that outlive a success live on.
/// Dropping the future kills them.
pub(crate) async fn supervise(invocation: Invocation<'_>, limits: &RunLimits) -> io::Result<Finished> {
    let (mut run, (stdout, stderr)) = Run::start(&invocation).await?;
    let mut stdout = Capped::new(stdout, limits.stdout);
    let (attendance, refused) = (invocation.attendance, run.refused());
    attendance.started(invocation.provider);
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
                () = ended(&mut run) => {}
                () = overflow(&mut stdout, &mut stderr) => {}
            }
        }
        RunEnd::Lost | RunEnd::Stopped | RunEnd::TooLarge => {}
    }
    let is_success = matches!(watched, RunEnd::Exited(status) if status.success());
    let may_leave =
        is_success && invocation.provider.sandbox == Sandbox::Compatible && !refused.is_cancelled();
    run.end(if may_leave { Instruction::Leave } else { Instruction::End }).await;
    stderr.drain_now();
    tracing::debug!(ended = ?watched, "plugin ended");
    let end = if refused.is_cancelled() { RunEnd::Recursion } else { watched };
    Ok(Finished { end, stdout: stdout.into_bytes(), stderr: attendance.last_lines(SHOWN).into() })
}

/// Waits for the end of the plugin.
async fn ended(run: &mut Run) {
    while let RunEnd::Stopped = run.next().await {}
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
