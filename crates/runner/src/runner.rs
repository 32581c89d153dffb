//! Runs plugins as processes.

use std::{
    future::{Future, pending},
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::Path,
    sync::Arc,
};

use tokio::{net::unix::pipe::Receiver, time::sleep};
use zeroize::Zeroizing;

use crate::{
    attendance::Attendance,
    directory::Scratch,
    error::{RunError, RunErrorKind},
    launch::Instruction,
    lease::PluginCommand,
    output::{Capped, Stderr},
    plugin_file::find,
    process::{Run, RunnerParts, command},
    stored,
};
use credbroker_credential::{Decoded, decode, exec_info, text::sanitize};
use credbroker_plugin::{FileError, PluginSpec, Sandbox};

const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
/// Our own variables, of which a plugin gets none.
const OWN_PREFIX: &[u8] = b"CREDBROKER_";
/// The bytes of stderr that an error shows.
const SHOWN: usize = 2 << 10;
/// What the stderr of a plugin has that tried to use a terminal: the path of its terminal, or the message of ENOTTY.
const TERMINAL: [&str; 2] = ["/dev/tty", "nappropriate ioctl for device"];

/// The output of a successful run.
#[derive(Debug)]
pub struct RunOutput {
    /// The credential.
    pub decoded: Decoded,
    /// The version of the plugin's file that ran, see [`PluginFile::version`](credbroker_plugin::PluginFile::version). When the
    /// file has another one, the credential is due.
    pub file_version: u64,
}

/// Runs a plugin once. The cache decides when. Tests replace it with one that starts no process.
pub trait PluginRunner: Send + Sync + 'static {
    /// Starts the plugin, waits for it, and decodes its output. `attendance` gets what it writes to stderr, decides how long
    /// it may take, and says whether a caller runs it in its terminal instead.
    ///
    /// Dropping the future ends the plugin and all processes below it.
    fn run(
        &self,
        spec: Arc<PluginSpec>,
        attendance: Arc<Attendance>,
    ) -> impl Future<Output = Result<RunOutput, RunError>> + Send;
}

/// Runs plugins as processes. The scheduler decides when.
#[derive(Debug)]
pub struct ProcessRunner {
    parts: RunnerParts,
    scratch: Scratch,
}

impl ProcessRunner {
    /// A runner of these parts.
    pub fn new(parts: RunnerParts) -> Self {
        let scratch = Scratch::new(parts.scratch.as_path().into(), parts.tasks.clone());
        Self { parts, scratch }
    }

    /// Runs the plugin and returns what it printed, unchecked, and the version of its file.
    ///
    /// # Errors
    ///
    /// As [`run`](PluginRunner::run), except for the output.
    pub async fn stdout(
        &self,
        spec: &PluginSpec,
        attendance: Arc<Attendance>,
    ) -> Result<(Zeroizing<Vec<u8>>, u64), RunError> {
        let provider = &spec.provider;
        let exec_info = exec_info(provider.api_version, spec.cluster.as_deref(), attendance.lender.is_some())
            .map_err(|source| RunError::of(spec, RunErrorKind::ExecInfo(source)))?;
        // Before the start: a file that is replaced later is not the one that ran.
        let file = match find(&spec.file).await {
            Ok(file) => Some(file),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(RunError::no_file(spec, error)),
        };
        if let Some(refusal) = provider.refusal(file.as_ref()) {
            return Err(RunError::of(spec, RunErrorKind::NotAllowed(refusal)));
        }
        let file = file.ok_or_else(|| RunError::no_file(spec, FileError::NotFound))?;
        let mut environment = spec.environment(attendance.session.as_deref());
        // They would configure a shim that the plugin calls.
        environment.retain(|name, _| !name.as_bytes().starts_with(OWN_PREFIX));
        environment.insert(EXEC_INFO_VARIABLE.into(), exec_info.into());
        let (program, args) = (file.executable.path.clone(), provider.args.clone());
        let plugin = PluginCommand { program, args, environment };
        if let Some(lender) = &attendance.lender {
            // While it holds the lease, its descendants get nothing from the broker.
            let _live = self.parts.live.add(lender.process);
            let command = sanitize(&spec.command()).into();
            return Ok((attendance.lease(lender, command, plugin, provider).await?, file.version));
        }
        // Declared before the run, so that it is dropped after it.
        let directory = self.scratch.directory().await.map_err(|cause| {
            RunError::of(spec, RunErrorKind::Directory(Arc::clone(&self.scratch.base), cause.into()))
        })?;
        let stdout = supervise(&self.parts, spec, (plugin, &directory.working), &attendance).await?;
        Ok((stdout, file.version))
    }
}

impl PluginRunner for ProcessRunner {
    async fn run(&self, spec: Arc<PluginSpec>, attendance: Arc<Attendance>) -> Result<RunOutput, RunError> {
        if let Some(credential) = &spec.provider.stored {
            return stored::read(&spec, credential.clone()).await;
        }
        let (stdout, file_version) = self.stdout(&spec, attendance).await?;
        let decoded = decode(&stdout, spec.provider.api_version)
            .map_err(|source| RunError::of(&spec, RunErrorKind::Decode(source)))?;
        Ok(RunOutput { decoded, file_version })
    }
}

/// Runs `plugin` in `directory` and returns what it printed. Ends all of its processes; in the compatible sandbox, those
/// that outlive a success live on. Dropping the future kills them.
async fn supervise(
    parts: &RunnerParts,
    spec: &PluginSpec,
    (plugin, directory): (PluginCommand, &Path),
    attendance: &Arc<Attendance>,
) -> Result<Zeroizing<Vec<u8>>, RunError> {
    let limits = &parts.limits;
    let mut command = command(&parts.launcher, &spec.provider, &plugin);
    command.current_dir(directory);
    let (mut run, (stdout, stderr)) = match Run::start(parts, command).await {
        Ok(started) => started,
        Err(cause) => return Err(not_started(spec, &plugin, cause).await),
    };
    let (mut stdout, refused) = (Capped::new(stdout, limits.stdout), run.refused.clone());
    attendance.started(&spec.provider);
    let mut stderr = Stderr::new(stderr, Arc::clone(attendance));
    let mut watched = tokio::select! {
        biased; // a plugin that writes without end must not starve the other branches
        limit = attendance.used_up() => Err(attendance.timed_out(limit)),
        end = run.next() => end,
        () = refused.cancelled() => Err(RunErrorKind::Recursion),
        kind = overflow(&mut stdout, &mut stderr) => Err(kind),
    };
    match watched {
        Ok(status) => {
            watched = tokio::select! {
                biased;
                () = sleep(limits.stdout_grace) => Ok(status),
                end = end_of_stdout(&mut stdout, &mut stderr) => end.map(|()| status),
            };
        }
        Err(RunErrorKind::Recursion | RunErrorKind::Timeout(..)) => {
            // The answer to a plugin that calls the broker is on its way, and most of them end with it.
            if let Err(RunErrorKind::Timeout(..)) = watched {
                run.terminate();
            }
            tokio::select! {
                biased;
                () = sleep(limits.terminate_grace) => {}
                () = async { while let Err(RunErrorKind::NeedsTerminal) = run.next().await {} } => {}
                _ = overflow(&mut stdout, &mut stderr) => {}
            }
        }
        Err(_) => {}
    }
    let is_success = matches!(&watched, Ok(status) if status.success());
    let may_leave = is_success && spec.provider.sandbox == Sandbox::Compatible && !refused.is_cancelled();
    run.end(if may_leave { Instruction::Leave } else { Instruction::End }).await;
    stderr.drain_now();
    tracing::debug!(ended = ?watched, "plugin ended");
    let end = if refused.is_cancelled() { Err(RunErrorKind::Recursion) } else { watched };
    let stderr: Arc<str> = attendance.last_lines(SHOWN).into();
    // A run has no terminal: it cannot open one, and its standard input is not one.
    let names_terminal = TERMINAL.iter().any(|words| stderr.contains(words));
    let stdout = stdout.into_bytes();
    let kind = match end {
        Ok(status) => match status.code() {
            Some(_) if names_terminal && stdout.trim_ascii().is_empty() => RunErrorKind::NeedsTerminal,
            Some(0) => return Ok(stdout),
            Some(code) => RunErrorKind::Exit(code),
            // Without an exit code, a signal ended the process.
            None => RunErrorKind::Signal(status.signal().unwrap_or_default()),
        },
        Err(kind) => kind,
    };
    Err(RunError { stderr, ..RunError::of(spec, kind) })
}

/// Why the kernel did not start it.
async fn not_started(spec: &PluginSpec, plugin: &PluginCommand, cause: io::Error) -> RunError {
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
async fn overflow(stdout: &mut Capped<Receiver>, stderr: &mut Stderr<Receiver>) -> RunErrorKind {
    if let Err(kind) = end_of_stdout(stdout, stderr).await {
        return kind;
    }
    stderr.drain().await;
    pending().await
}

/// Reads both pipes until stdout ends. The end of stderr is not an event.
async fn end_of_stdout(
    stdout: &mut Capped<Receiver>,
    stderr: &mut Stderr<Receiver>,
) -> Result<(), RunErrorKind> {
    tokio::select! {
        biased;
        end = stdout.fill() => end,
        () = async { stderr.drain().await; pending().await } => Ok(()),
    }
}
