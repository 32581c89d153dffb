//! Supervises one run, from the start of its plugin to the end of its processes.

use std::{convert::Infallible, future::pending, io, sync::Arc};

use tokio::{net::unix::pipe::Receiver, time::sleep};
use zeroize::Zeroizing;

use super::{
    RunLimits,
    output::{Capped, Tail, TooLarge},
    process::{Invocation, Pipes, Run, RunEnd},
};
use credbroker_credential::text::last_lines;
use credbroker_plugin::Sandbox;

/// The bytes of stderr that an error shows.
const SHOWN: usize = 2 << 10;

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) end: RunEnd,
    pub(super) stdout: Zeroizing<Vec<u8>>,
    /// The end of it, sanitised.
    pub(super) stderr: String,
}

/// Runs `invocation` and ends all of its processes; in the compatible sandbox, those that outlive a success live on.
/// Dropping the future kills them.
pub(super) async fn supervise(invocation: Invocation<'_>, limits: &RunLimits) -> io::Result<Finished> {
    let (mut run, Pipes { stdout, stderr }) = Run::start(&invocation).await?;
    let mut stdout = Capped::new(stdout, limits.stdout);
    let (attendance, refused) = (invocation.attendance, run.refused());
    attendance.started(invocation.budget);
    let mut stderr = Tail::new(stderr, limits.stderr, Arc::clone(attendance));
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
            if let Err(TooLarge) = more {
                watched = RunEnd::TooLarge;
            }
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
    if is_success && invocation.sandbox == Sandbox::Compatible && !refused.is_cancelled() {
        run.leave().await;
    } else {
        run.end().await;
    }
    stderr.drain_now();
    tracing::debug!(ended = ?watched, "plugin ended");
    let end = if refused.is_cancelled() { RunEnd::Recursion } else { watched };
    let (bytes, cut) = stderr.end();
    let stderr = last_lines(bytes, cut, SHOWN);
    Ok(Finished { end, stdout: stdout.into_bytes(), stderr })
}

/// Waits for the end of the plugin.
async fn ended(run: &mut Run) {
    while let RunEnd::Stopped = run.next().await {}
}

/// Reads both pipes until stdout exceeds its limit; never returns if it does not.
async fn overflow(stdout: &mut Capped<Receiver>, stderr: &mut Tail<Receiver>) {
    if let Ok(()) = end_of_stdout(stdout, stderr).await {
        match drain(stderr).await {}
    }
}

/// Reads both pipes until stdout ends.
async fn end_of_stdout(stdout: &mut Capped<Receiver>, stderr: &mut Tail<Receiver>) -> Result<(), TooLarge> {
    tokio::select! {
        biased;
        end = stdout.fill() => end,
        never = drain(stderr) => match never {},
    }
}

/// Reads stderr. Its end is not an event, so this never returns.
async fn drain(stderr: &mut Tail<Receiver>) -> Infallible {
    stderr.drain().await;
    pending().await
}
