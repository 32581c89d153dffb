//! The runner of real processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use credbroker_proto::RECURSION_VARIABLE;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use super::{
    PluginRunner, RunError, RunOutput,
    directory::Scratch,
    process::Invocation,
    supervise::{End, Finished, supervise},
};
use crate::{
    credential::{decode, exec_info},
    plugin::{FileError, PluginSpec},
    text::sanitize,
};

const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
/// Variables of our own: none of them is a plugin's business, but for the recursion marker.
const OWN_PREFIX: &[u8] = b"CREDBROKER_";

/// Bounds on each run.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of stdout. One more ends the run.
    pub stdout: usize,
    /// Bytes of stderr that are kept: its end.
    pub stderr: usize,
    /// How long a plugin that ran into its timeout has to clean up after SIGTERM.
    pub terminate_grace: Duration,
    /// How long the answer waits for others to close a stdout that the plugin left to them.
    pub stdout_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stdout: 1 << 20,
            stderr: 64 << 10,
            terminate_grace: Duration::from_secs(2),
            stdout_grace: Duration::from_millis(500),
        }
    }
}

/// Starts plugins as processes, at once: the scheduler decides when.
#[derive(Debug)]
pub struct ProcessRunner {
    limits: Limits,
    scratch: Scratch,
}

impl ProcessRunner {
    /// Every run gets a directory of its own in `base`, an absolute path to a directory that no other user can write
    /// to; it goes after the run. `tasks` owns these removals.
    pub fn new(limits: Limits, base: PathBuf, tasks: TaskTracker) -> Self {
        Self { limits, scratch: Scratch::new(base.into(), tasks) }
    }

    /// What the plugin printed, if it ended well.
    pub(super) async fn stdout(&self, spec: &PluginSpec) -> Result<(Zeroizing<Vec<u8>>, u64), RunError> {
        let provider = &spec.provider;
        let command = command_of(spec);
        let exec_info = exec_info(provider.api_version, spec.cluster.as_deref())
            .map_err(|source| RunError::ExecInfo { command: Arc::clone(&command), source })?;
        // Before the start: a file that is replaced from here on is another one than what ran.
        let file = spec.file.look().await.map_err(|error| no_file(spec, error))?;
        let command = command_of(spec); // by its path, now that it is found
        // Declared before the run, so that it is removed after the run has ended, however it ends.
        let directory = self.scratch.directory().await.map_err(|source| RunError::Directory {
            command: Arc::clone(&command),
            base: Arc::clone(&self.scratch.base),
            source: source.into(),
        })?;
        let invocation = Invocation {
            program: &file.executable.path,
            args: &provider.args,
            environment: environment(spec, exec_info, &directory.marker),
            directory: &directory.working,
            marker: &directory.marker,
            timeout: provider.timeout,
            tasks: &self.scratch.tasks,
        };
        let size = size(&invocation);
        let finished = supervise(invocation, &self.limits).await;
        let finished = match finished {
            Ok(finished) => finished,
            Err(source) => return Err(refused(spec, size, source).await),
        };
        let stdout = self.judge(finished, command, provider.timeout)?;
        Ok((stdout, file.version))
    }

    fn judge(
        &self,
        finished: Finished,
        command: Arc<str>,
        limit: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, RunError> {
        let stderr = finished.stderr.into();
        Err(match finished.end {
            End::Exited(status) => match status.code() {
                Some(0) => return Ok(finished.stdout),
                Some(code) => RunError::Exit { command, code, stderr },
                // A process that has ended without a code was ended by a signal.
                None => RunError::Signal { command, signal: status.signal().unwrap_or_default(), stderr },
            },
            End::Recursion => RunError::Recursion { command },
            End::Stopped => RunError::NeedsTerminal { command, stderr },
            End::TimedOut => RunError::Timeout { command, limit, stderr },
            End::TooLarge => RunError::OutputTooLarge { command, limit: self.limits.stdout },
        })
    }
}

impl PluginRunner for ProcessRunner {
    async fn run(&self, spec: Arc<PluginSpec>) -> Result<RunOutput, RunError> {
        let (stdout, file_version) = self.stdout(&spec).await?;
        let decoded = decode(&stdout, spec.provider.api_version)
            .map_err(|source| RunError::Decode { command: command_of(&spec), source })?;
        Ok(RunOutput { decoded, file_version })
    }
}

/// The whole environment. Of our own variables none passes through: one could steer a shim below the plugin.
fn environment(spec: &PluginSpec, exec_info: String, marker: &Path) -> BTreeMap<OsString, OsString> {
    let mut environment = spec.environment();
    environment.retain(|name, _| !name.as_bytes().starts_with(OWN_PREFIX));
    environment.insert(EXEC_INFO_VARIABLE.into(), exec_info.into());
    environment.insert(RECURSION_VARIABLE.into(), marker.into());
    environment
}

/// Bytes that the kernel has to copy.
fn size(invocation: &Invocation<'_>) -> usize {
    let args = invocation.args.iter().map(|arg| arg.len() + 1);
    let length = |(name, value): (&OsString, &OsString)| name.len() + value.len() + 2;
    args.chain(invocation.environment.iter().map(length)).sum()
}

/// Why the kernel did not start it.
async fn refused(spec: &PluginSpec, size: usize, source: io::Error) -> RunError {
    let command = command_of(spec);
    match source.kind() {
        io::ErrorKind::ArgumentListTooLong => RunError::ArgumentsTooLong { command, size },
        // The same error stands for a script whose interpreter is missing.
        io::ErrorKind::NotFound => match spec.file.look().await {
            Err(error @ FileError::NotFound) => no_file(spec, error),
            _ => RunError::Spawn { command, source: source.into() },
        },
        io::ErrorKind::TimedOut => RunError::Unanswered { command },
        _ => RunError::Spawn { command, source: source.into() },
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
