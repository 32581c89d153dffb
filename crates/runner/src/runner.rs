//! Runs plugins as processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use super::{
    Attendance, LeasedCommand, LiveRuns, PluginRunner, RunBudget, RunError, RunOutput,
    directory::Scratch,
    plugin_file::find,
    process::{Invocation, RunEnd},
    supervise::{Finished, supervise},
};
use credbroker_credential::{decode, exec_info, text::sanitize};
use credbroker_plugin::{FileError, PluginSpec, Session};

const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
/// What the stderr of a plugin has that tried to use a terminal: the path of its terminal, or the message of ENOTTY.
const TERMINAL: [&str; 2] = ["/dev/tty", "nappropriate ioctl for device"];
/// Our own variables, of which a plugin gets none.
const OWN_PREFIX: &[u8] = b"CREDBROKER_";

/// The limits of each run.
#[derive(Clone, Debug)]
pub struct RunLimits {
    /// The most bytes of stdout; one more ends the run.
    pub stdout: usize,
    /// The bytes that are kept of the end of stderr.
    pub stderr: usize,
    /// The time between SIGTERM and SIGKILL for a plugin that exceeds its timeout, and between the refusal and SIGKILL for
    /// one that calls the broker.
    pub terminate_grace: Duration,
    /// How long the run waits for child processes to close stdout after the plugin has exited.
    pub stdout_grace: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            stdout: 1 << 20,
            stderr: 64 << 10,
            terminate_grace: Duration::from_secs(2),
            stdout_grace: Duration::from_millis(500),
        }
    }
}

/// What plugin runs need.
#[derive(Clone, Debug)]
pub struct RunnerParts {
    /// The limits of each run.
    pub limits: RunLimits,
    /// This program, which is started as the launcher of each plugin.
    pub launcher: PathBuf,
    /// Where each run gets a separate directory, which is removed after the run. It must be an absolute path that no other
    /// user can write to.
    pub scratch: PathBuf,
    /// Owns what continues after a run, such as the removal of its directory.
    pub tasks: TaskTracker,
    /// Gets every run.
    pub live: LiveRuns,
}

/// Runs plugins as processes. The scheduler decides when.
#[derive(Debug)]
pub struct ProcessRunner {
    limits: RunLimits,
    launcher: PathBuf,
    scratch: Scratch,
    live: LiveRuns,
}

impl ProcessRunner {
    /// A runner of these parts.
    pub fn new(parts: RunnerParts) -> Self {
        let RunnerParts { limits, launcher, scratch, tasks, live } = parts;
        Self { limits, launcher, scratch: Scratch::new(scratch.into(), tasks), live }
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
        let exec_info =
            exec_info(provider.api_version, spec.cluster.as_deref(), attendance.lender().is_some())
                .map_err(|source| RunError::ExecInfo { command: command_of(spec), source })?;
        // Before the start: a file that is replaced later is not the one that ran.
        let file = match find(&spec.file).await {
            Ok(file) => Some(file),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(no_file(spec, error)),
        };
        let command = command_of(spec); // by its path, if it was found
        if let Some(refusal) = provider.refusal(file.as_ref()) {
            return Err(RunError::NotAllowed { command, refusal });
        }
        let file = file.ok_or_else(|| no_file(spec, FileError::NotFound))?;
        let budget = RunBudget { unattended: provider.timeout, attended: provider.interactive_timeout };
        if let Some(lender) = attendance.lender() {
            let environment = environment(spec, attendance.session(), exec_info);
            let (program, args) = (file.executable.path.clone(), provider.args.clone());
            // While it holds the lease, its descendants get nothing from the broker.
            let _live = self.live.add(lender.process());
            let leased = LeasedCommand { program, args, environment };
            return Ok((lender.run(command, leased, &attendance, budget).await?, file.version));
        }
        // Declared before the run, so that it is dropped after it.
        let directory = self.scratch.directory().await.map_err(|error| RunError::Directory {
            command: Arc::clone(&command),
            base: Arc::clone(&self.scratch.base),
            cause: error.into(),
        })?;
        let invocation = Invocation {
            launcher: &self.launcher,
            sandbox: provider.sandbox,
            program: &file.executable.path,
            args: &provider.args,
            environment: environment(spec, attendance.session(), exec_info),
            directory: &directory.working,
            budget,
            attendance: &attendance,
            tasks: &self.scratch.tasks,
            live: &self.live,
        };
        let size = size(&invocation);
        let finished = supervise(invocation, &self.limits).await;
        let finished = match finished {
            Ok(finished) => finished,
            Err(cause) => return Err(refused(spec, size, cause).await),
        };
        let stdout = self.judge(finished, command, budget)?;
        Ok((stdout, file.version))
    }

    fn judge(
        &self,
        finished: Finished,
        command: Arc<str>,
        budget: RunBudget,
    ) -> Result<Zeroizing<Vec<u8>>, RunError> {
        let stderr: Arc<str> = finished.stderr.into();
        // A run has no terminal: it cannot open one, and its standard input is not one.
        let names_terminal = TERMINAL.iter().any(|words| stderr.contains(words));
        let wanted_terminal = names_terminal && finished.stdout.trim_ascii().is_empty();
        Err(match finished.end {
            RunEnd::Exited(status) => match status.code() {
                Some(_) if wanted_terminal => RunError::NeedsTerminal { command, stderr },
                Some(0) => return Ok(finished.stdout),
                Some(code) => RunError::Exit { command, code, stderr },
                // Without an exit code, a signal ended the process.
                None => RunError::Signal { command, signal: status.signal().unwrap_or_default(), stderr },
            },
            RunEnd::Lost => RunError::Signal { command, signal: Signal::KILL.as_raw(), stderr },
            RunEnd::Recursion => RunError::Recursion { command },
            RunEnd::Stopped => RunError::NeedsTerminal { command, stderr },
            RunEnd::TimedOut(limit) => budget.used_up(command, limit, stderr),
            RunEnd::TooLarge => RunError::OutputTooLarge { command, limit: self.limits.stdout },
        })
    }
}

impl PluginRunner for ProcessRunner {
    async fn run(&self, spec: Arc<PluginSpec>, attendance: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let (stdout, file_version) = self.stdout(&spec, attendance).await?;
        let decoded = decode(&stdout, spec.provider.api_version)
            .map_err(|source| RunError::Decode { command: command_of(&spec), source })?;
        Ok(RunOutput { decoded, file_version })
    }
}

/// The environment of the plugin. It has none of our own variables, which would configure a shim that the plugin calls.
fn environment(
    spec: &PluginSpec,
    session: Option<&Arc<Session>>,
    exec_info: String,
) -> BTreeMap<OsString, OsString> {
    let mut environment = spec.environment(session.map(AsRef::as_ref));
    environment.retain(|name, _| !name.as_bytes().starts_with(OWN_PREFIX));
    environment.insert(EXEC_INFO_VARIABLE.into(), exec_info.into());
    environment
}

/// The bytes of arguments and environment that the kernel copies.
fn size(invocation: &Invocation<'_>) -> usize {
    let args = invocation.args.iter().map(|arg| arg.len() + 1);
    let length = |(name, value): (&OsString, &OsString)| name.len() + value.len() + 2;
    args.chain(invocation.environment.iter().map(length)).sum()
}

/// Why the kernel did not start it.
async fn refused(spec: &PluginSpec, size: usize, cause: io::Error) -> RunError {
    let command = command_of(spec);
    match cause.kind() {
        io::ErrorKind::ArgumentListTooLong => RunError::ArgumentsTooLong { command, size },
        // A missing interpreter of a script gives the same error.
        io::ErrorKind::NotFound => match find(&spec.file).await {
            Err(error @ FileError::NotFound) => no_file(spec, error),
            _ => RunError::Spawn { command, cause: cause.into() },
        },
        io::ErrorKind::TimedOut => RunError::Unanswered { command },
        _ => RunError::Spawn { command, cause: cause.into() },
    }
}

fn no_file(spec: &PluginSpec, error: FileError) -> RunError {
    let command = command_of(spec);
    match error {
        FileError::NotFound => RunError::NotFound {
            command: sanitize(&spec.provider.command.to_string()).into(),
            place: spec.provider.command.place(),
            install_hint: spec.provider.install_hint.as_deref().map(sanitize),
        },
        FileError::Unanswered => RunError::Unanswered { command },
        FileError::Unreadable(source) => RunError::Unreadable { command, source },
    }
}

fn command_of(spec: &PluginSpec) -> Arc<str> {
    sanitize(&spec.command()).into()
}
