//! Supervises one run, from the start of its plugin to the end of its processes.

use std::{
    convert::Infallible, future::pending, io, os::unix::process::ExitStatusExt as _, process::ExitStatus,
    sync::Arc, time::Duration,
};

use rustix::process::Signal;
use tokio::{net::unix::pipe::Receiver, time::sleep};
use zeroize::Zeroizing;

use super::{
    RunLimits,
    output::{Capped, Tail, TooLarge},
    process::{Event, Invocation, Pipes, Run},
};
use credbroker_credential::text::last_lines;
use credbroker_plugin::Sandbox;

/// The bytes of stderr that an error shows.
const SHOWN: usize = 2 << 10;

/// How a run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    Exited(ExitStatus),
    Recursion,
    Stopped,
    /// It used up this time.
    TimedOut(Duration),
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
        limit = attendance.used_up() => StopCause::TimedOut(limit),
        event = run.next() => event.into(),
        () = refused.cancelled() => StopCause::Recursion,
        () = overflow(&mut stdout, &mut stderr) => StopCause::TooLarge,
    };
    match watched {
        StopCause::Exited(_) => {
            let more = tokio::select! {
                biased;
                () = sleep(limits.stdout_grace) => Ok(()),
                end = end_of_stdout(&mut stdout, &mut stderr) => end,
            };
            if let Err(TooLarge) = more {
                watched = StopCause::TooLarge;
            }
        }
        StopCause::Recursion | StopCause::TimedOut(_) => {
            // The answer to a plugin that calls the broker is on its way, and most of them end with it.
            if let StopCause::TimedOut(_) = watched {
                run.terminate();
            }
            tokio::select! {
                biased;
                () = sleep(limits.terminate_grace) => {}
                () = ended(&mut run) => {}
                () = overflow(&mut stdout, &mut stderr) => {}
            }
        }
        StopCause::Lost | StopCause::Stopped | StopCause::TooLarge => {}
    }
    let is_success = matches!(watched, StopCause::Exited(status) if status.success());
    if is_success && invocation.sandbox == Sandbox::Compatible && !refused.is_cancelled() {
        run.leave().await;
    } else {
        run.end().await;
    }
    stderr.drain_now();
    tracing::debug!(ended = ?watched, "plugin ended");
    let end = match watched {
        _ if refused.is_cancelled() => RunEnd::Recursion,
        StopCause::Exited(status) => RunEnd::Exited(status),
        // Only a process of this user kills a launcher, such as the plugin, which ends too.
        StopCause::Lost => RunEnd::Exited(ExitStatus::from_raw(Signal::KILL.as_raw())),
        StopCause::Recursion => RunEnd::Recursion,
        StopCause::Stopped => RunEnd::Stopped,
        StopCause::TimedOut(limit) => RunEnd::TimedOut(limit),
        StopCause::TooLarge => RunEnd::TooLarge,
    };
    let (bytes, cut) = stderr.end();
    let stderr = last_lines(bytes, cut, SHOWN);
    Ok(Finished { end, stdout: stdout.into_bytes(), stderr })
}

/// What ended the run.
#[derive(Clone, Copy, Debug)]
enum StopCause {
    Exited(ExitStatus),
    Lost,
    Recursion,
    Stopped,
    TimedOut(Duration),
    TooLarge,
}

impl From<Event> for StopCause {
    fn from(event: Event) -> Self {
        match event {
            Event::Ended(status) => Self::Exited(status),
            Event::Lost => Self::Lost,
            Event::Stopped => Self::Stopped,
        }
    }
}

/// Waits for the end of the plugin.
async fn ended(run: &mut Run) {
    while let Event::Stopped = run.next().await {}
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
