//! Runs plugins as processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    future::Future,
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::PathBuf,
    sync::Arc,
};

use rustix::process::Signal;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use crate::{
    attendance::Attendance,
    directory::Scratch,
    error::RunError,
    lease::PluginCommand,
    live::LiveRuns,
    plugin_file::find,
    process::{Invocation, RunEnd},
    supervise::{Finished, RunLimits, supervise},
};
use credbroker_credential::{Decoded, decode, exec_info, text::sanitize};
use credbroker_plugin::{FileError, PluginSpec, Session};

const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
/// What the stderr of a plugin has that tried to use a terminal: the path of its terminal, or the message of ENOTTY.
const TERMINAL: [&str; 2] = ["/dev/tty", "nappropriate ioctl for device"];
/// Our own variables, of which a plugin gets none.
const OWN_PREFIX: &[u8] = b"CREDBROKER_";

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

impl<R: PluginRunner> PluginRunner for Arc<R> {
    fn run(
        &self,
        spec: Arc<PluginSpec>,
        attendance: Arc<Attendance>,
    ) -> impl Future<Output = Result<RunOutput, RunError>> + Send {
        R::run(self, spec, attendance)
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
        let environment = environment(spec, attendance.session(), exec_info);
        let (program, args) = (file.executable.path.clone(), provider.args.clone());
        let plugin = PluginCommand { program, args, environment };
        if let Some(lender) = attendance.lender() {
            // While it holds the lease, its descendants get nothing from the broker.
            let _live = self.parts.live.add(lender.process());
            return Ok((attendance.lease(lender, command, plugin, provider).await?, file.version));
        }
        // Declared before the run, so that it is dropped after it.
        let directory = self.scratch.directory().await.map_err(|error| RunError::Directory {
            command: Arc::clone(&command),
            base: Arc::clone(&self.scratch.base),
            cause: error.into(),
        })?;
        let invocation = Invocation {
            launcher: &self.parts.launcher,
            provider,
            plugin: &plugin,
            directory: &directory.working,
            attendance: &attendance,
            tasks: &self.parts.tasks,
            live: &self.parts.live,
        };
        match supervise(invocation, &self.parts.limits).await {
            Ok(finished) => Ok((self.judge(finished, command, &attendance)?, file.version)),
            Err(cause) => Err(refused(spec, &plugin, cause).await),
        }
    }

    fn judge(
        &self,
        Finished { end, stdout, stderr }: Finished,
        command: Arc<str>,
        attendance: &Attendance,
    ) -> Result<Zeroizing<Vec<u8>>, RunError> {
        // A run has no terminal: it cannot open one, and its standard input is not one.
        let names_terminal = TERMINAL.iter().any(|words| stderr.contains(words));
        let wanted_terminal = names_terminal && stdout.trim_ascii().is_empty();
        Err(match end {
            RunEnd::Exited(status) => match status.code() {
                Some(_) if wanted_terminal => RunError::NeedsTerminal { command, stderr },
                Some(0) => return Ok(stdout),
                Some(code) => RunError::Exit { command, code, stderr },
                // Without an exit code, a signal ended the process.
                None => RunError::Signal { command, signal: status.signal().unwrap_or_default(), stderr },
            },
            RunEnd::Lost => RunError::Signal { command, signal: Signal::KILL.as_raw(), stderr },
            RunEnd::Recursion => RunError::Recursion { command },
            RunEnd::Stopped => RunError::NeedsTerminal { command, stderr },
            RunEnd::TimedOut(limit) => attendance.timed_out(command, limit, stderr),
            RunEnd::TooLarge => RunError::OutputTooLarge { command, limit: self.parts.limits.stdout },
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

/// Why the kernel did not start it.
async fn refused(spec: &PluginSpec, plugin: &PluginCommand, cause: io::Error) -> RunError {
    let command = command_of(spec);
    match cause.kind() {
        io::ErrorKind::ArgumentListTooLong => RunError::ArgumentsTooLong { command, size: plugin.size() },
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
