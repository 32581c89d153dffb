//! Runs plugins as processes.

use std::{collections::BTreeMap, ffi::OsString, future::Future, os::unix::ffi::OsStrExt as _, sync::Arc};

use zeroize::Zeroizing;

use crate::{
    attendance::Attendance,
    directory::Scratch,
    error::{RunError, RunErrorKind},
    lease::PluginCommand,
    plugin_file::find,
    process::{Invocation, RunnerParts},
    supervise::supervise,
};
use credbroker_credential::{Decoded, decode, exec_info, text::sanitize};
use credbroker_plugin::{FileError, PluginSpec, Session};

const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
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
        let environment = environment(spec, attendance.session.as_deref(), exec_info);
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
        let (parts, directory) = (&self.parts, &*directory.working);
        let invocation = Invocation { parts, spec, plugin, directory, attendance: &attendance };
        Ok((supervise(invocation).await?, file.version))
    }
}

impl PluginRunner for ProcessRunner {
    async fn run(&self, spec: Arc<PluginSpec>, attendance: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let (stdout, file_version) = self.stdout(&spec, attendance).await?;
        let decoded = decode(&stdout, spec.provider.api_version)
            .map_err(|source| RunError::of(&spec, RunErrorKind::Decode(source)))?;
        Ok(RunOutput { decoded, file_version })
    }
}

/// The environment of the plugin. It has none of our own variables, which would configure a shim that the plugin calls.
fn environment(
    spec: &PluginSpec,
    session: Option<&Session>,
    exec_info: String,
) -> BTreeMap<OsString, OsString> {
    let mut environment = spec.environment(session);
    environment.retain(|name, _| !name.as_bytes().starts_with(OWN_PREFIX));
    environment.insert(EXEC_INFO_VARIABLE.into(), exec_info.into());
    environment
}
