//! One run, from the start of its process to the end of its group.

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
    Limits,
    output::{Capped, Tail, TooLarge},
    process::{Group, Invocation},
};
use crate::text::last_lines;

/// How often a run is looked at for the recursion marker, and for a leader that is stopped.
const GLANCE: Duration = Duration::from_millis(100);
/// How long one look for the marker may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of stderr an error shows.
const SHOWN: usize = 2 << 10;

/// How a run ended.
#[derive(Debug)]
pub(super) enum End {
    Exited(ExitStatus),
    Recursion,
    Stopped,
    TimedOut,
    TooLarge,
}

/// One run, over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) end: End,
    pub(super) stdout: Zeroizing<Vec<u8>>,
    /// The end of it, sanitised.
    pub(super) stderr: String,
}

/// Runs `invocation` to its end, after which nothing is left of its process group. Dropping the future kills the group.
pub(super) async fn supervise(invocation: Invocation<'_>, limits: &Limits) -> io::Result<Finished> {
    let (mut group, stdout, stderr) = Group::start(&invocation).await?;
    let mut stdout = Capped::new(stdout, limits.stdout);
    let mut stderr = Tail::new(stderr, limits.stderr);
    let pid = group.id();
    let mut watched = tokio::select! {
        biased; // A plugin that never stops writing must not keep the others from their turn.
        () = sleep(invocation.timeout) => Watched::TimedOut,
        () = group.exited() => Watched::Exited,
        seen = watch(&group, invocation.marker) => seen,
        () = overflow(&mut stdout, &mut stderr) => Watched::TooLarge,
    };
    match watched {
        Watched::Exited => {
            let more = tokio::select! {
                biased;
                () = sleep(limits.stdout_grace) => Ok(()),
                end = end_of_stdout(&mut stdout, &mut stderr) => end,
            };
            if let Err(TooLarge) = more {
                watched = Watched::TooLarge;
            }
        }
        Watched::TimedOut => {
            group.signal(Signal::TERM);
            tokio::select! {
                biased;
                () = sleep(limits.terminate_grace) => {}
                () = group.exited() => {}
                () = overflow(&mut stdout, &mut stderr) => {}
            }
        }
        Watched::Recursion | Watched::Stopped | Watched::TooLarge => {}
    }
    let status = group.end().await;
    stderr.drain_now();
    tracing::debug!(pid, status = status.as_ref().ok().map(tracing::field::display), ended = ?watched, "plugin ended");
    let end = match watched {
        _ if is_there(invocation.marker).await => End::Recursion,
        Watched::Exited => End::Exited(status?),
        Watched::Recursion => End::Recursion,
        Watched::Stopped => End::Stopped,
        Watched::TimedOut => End::TimedOut,
        Watched::TooLarge => End::TooLarge,
    };
    let (bytes, cut) = stderr.end();
    let stderr = last_lines(bytes, cut, SHOWN);
    Ok(Finished { end, stdout: stdout.into_bytes(), stderr })
}

/// What was seen first.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Exited,
    Recursion,
    Stopped,
    TimedOut,
    TooLarge,
}

/// Looks every now and then for what nothing else tells: the marker, and a leader that waits for a terminal, which it
/// would do until its time is up.
async fn watch(group: &Group, marker: &Arc<Path>) -> Watched {
    loop {
        if is_there(marker).await {
            return Watched::Recursion;
        }
        if group.is_stopped_at_terminal() {
            return Watched::Stopped;
        }
        sleep(GLANCE).await;
    }
}

async fn is_there(marker: &Arc<Path>) -> bool {
    let marker = Arc::clone(marker);
    let look = spawn_blocking(move || marker.symlink_metadata().is_ok());
    matches!(timeout(PATIENCE, look).await, Ok(Ok(true)))
}

/// Reads both pipes until there is too much on stdout; for ever if there never is.
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

/// The end of stderr means nothing.
async fn drain(stderr: &mut Tail<ChildStderr>) -> Infallible {
    stderr.drain().await;
    pending().await
}
