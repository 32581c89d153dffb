//! Supervises one run, from the start of its process to the end of its group.

use std::{
    convert::Infallible, future::pending, io, path::Path, process::ExitStatus, sync::Arc, time::Duration,
};

use rustix::process::Signal;
use tokio::{
    process::{ChildStderr, ChildStdout},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use zeroize::Zeroizing;

use super::{
    RunLimits,
    output::{Capped, Tail, TooLarge},
    process::{Group, Invocation},
};
use crate::text::last_lines;

/// How often a run is checked for the recursion marker and for a stopped leader.
const GLANCE: Duration = Duration::from_millis(100);
/// How long one check for the marker may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// The bytes of stderr that an error shows.
const SHOWN: usize = 2 << 10;

/// How a run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    Exited(ExitStatus),
    Recursion,
    Stopped,
    TimedOut,
    TooLarge,
}

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) end: RunEnd,
    pub(super) stdout: Zeroizing<Vec<u8>>,
    /// The end of it, sanitised.
    pub(super) stderr: String,
}

/// Runs `invocation` and ends its process group. Dropping the future kills the group.
pub(super) async fn supervise(invocation: Invocation<'_>, limits: &RunLimits) -> io::Result<Finished> {
    let mut run = invocation.live.begin();
    let (mut group, stdout, stderr) = Group::start(&invocation).await?;
    run.started(group.id());
    let mut stdout = Capped::new(stdout, limits.stdout);
    let mut stderr = Tail::new(stderr, limits.stderr);
    let pid = group.id();
    let mut watched = tokio::select! {
        biased; // a plugin that writes without end must not starve the other branches
        () = sleep(invocation.timeout) => StopCause::TimedOut,
        () = group.exited() => StopCause::Exited,
        seen = watch(&group, invocation.marker) => seen,
        () = overflow(&mut stdout, &mut stderr) => StopCause::TooLarge,
    };
    match watched {
        StopCause::Exited => {
            let more = tokio::select! {
                biased;
                () = sleep(limits.stdout_grace) => Ok(()),
                end = end_of_stdout(&mut stdout, &mut stderr) => end,
            };
            if let Err(TooLarge) = more {
                watched = StopCause::TooLarge;
            }
        }
        StopCause::TimedOut => {
            group.signal(Signal::TERM);
            tokio::select! {
                biased;
                () = sleep(limits.terminate_grace) => {}
                () = group.exited() => {}
                () = overflow(&mut stdout, &mut stderr) => {}
            }
        }
        StopCause::Recursion | StopCause::Stopped | StopCause::TooLarge => {}
    }
    let status = group.end().await;
    stderr.drain_now();
    tracing::debug!(pid, status = status.as_ref().ok().map(tracing::field::display), ended = ?watched, "plugin ended");
    let end = match watched {
        _ if is_there(invocation.marker).await => RunEnd::Recursion,
        StopCause::Exited => RunEnd::Exited(status?),
        StopCause::Recursion => RunEnd::Recursion,
        StopCause::Stopped => RunEnd::Stopped,
        StopCause::TimedOut => RunEnd::TimedOut,
        StopCause::TooLarge => RunEnd::TooLarge,
    };
    let (bytes, cut) = stderr.end();
    let stderr = last_lines(bytes, cut, SHOWN);
    Ok(Finished { end, stdout: stdout.into_bytes(), stderr })
}

/// What ended the run.
#[derive(Clone, Copy, Debug)]
enum StopCause {
    Exited,
    Recursion,
    Stopped,
    TimedOut,
    TooLarge,
}

/// Polls for the two conditions without an event: the marker, and a leader that is stopped because it used the terminal,
/// which would otherwise run into its timeout.
async fn watch(group: &Group, marker: &Arc<Path>) -> StopCause {
    loop {
        if is_there(marker).await {
            return StopCause::Recursion;
        }
        if group.is_stopped_at_terminal() {
            return StopCause::Stopped;
        }
        sleep(GLANCE).await;
    }
}

async fn is_there(marker: &Arc<Path>) -> bool {
    let marker = Arc::clone(marker);
    let look = spawn_blocking(move || marker.symlink_metadata().is_ok());
    matches!(timeout(CHECK_TIMEOUT, look).await, Ok(Ok(true)))
}

/// Reads both pipes until stdout exceeds its limit; never returns if it does not.
async fn overflow(stdout: &mut Capped<ChildStdout>, stderr: &mut Tail<ChildStderr>) {
    if let Ok(()) = end_of_stdout(stdout, stderr).await {
        match drain(stderr).await {}
    }
}

/// Reads both pipes until stdout ends.
async fn end_of_stdout(
    stdout: &mut Capped<ChildStdout>,
    stderr: &mut Tail<ChildStderr>,
) -> Result<(), TooLarge> {
    tokio::select! {
        biased;
        end = stdout.fill() => end,
        never = drain(stderr) => match never {},
    }
}

/// Reads stderr. Its end is not an event, so this never returns.
async fn drain(stderr: &mut Tail<ChildStderr>) -> Infallible {
    stderr.drain().await;
    pending().await
}
