//! Why a run brought no credential.

use std::{error::Error, fmt, io, path::Path, sync::Arc, time::Duration};

use crate::stored::StoredError;
use credbroker_credential::{
    DecodeError, ExecInfoError,
    text::{quoted, sanitize},
};
use credbroker_plugin::{FileError, PluginSpec, Refusal};

/// Why a plugin run brought no credential. Never contains stdout, which may be a token.
#[derive(Clone, Debug)]
pub struct RunError {
    /// The plugin's executable; of one that is not installed, as configured.
    pub command: Arc<str>,
    /// What happened.
    pub kind: RunErrorKind,
    /// The end of the plugin's stderr, sanitized. Not every message shows it.
    pub stderr: Arc<str>,
}

/// SIGKILL: what the kernel sends where memory runs out.
const KILLED: i32 = 9;
/// The exit code of a shell whose command SIGKILL has ended.
const SHELL_KILLED: i32 = 128 + KILLED;
const LACKING: &str =
    "memory may have run out: raise the memory limit of the broker or lower `limits.pluginRuns`";

/// What happened to a run.
#[derive(Clone, Debug)]
pub enum RunErrorKind {
    /// Its arguments and environment have so many bytes, which exceeds a limit of the kernel.
    ArgumentsTooLong(usize),
    /// Its output is not accepted.
    Decode(DecodeError),
    /// The broker could not make a working directory for it in this one.
    Directory(Arc<Path>, Arc<io::Error>),
    /// Its cluster cannot be passed to it.
    ExecInfo(ExecInfoError),
    /// Its exit code is this one, and not 0.
    Exit(i32),
    /// It tried to use a terminal.
    NeedsTerminal,
    /// Its executable must not run.
    NotAllowed(Refusal),
    /// Its executable does not exist. With the end of the message, sanitized: where it was searched for, and its hint.
    NotFound(String),
    /// It printed more bytes than this limit and was ended.
    OutputTooLarge(usize),
    /// It ended without a result because of a bug in the broker.
    Panicked,
    /// It asked the broker for the credential that it must provide.
    Recursion,
    /// A signal that the broker did not send ended it.
    Signal(i32),
    /// It could not be started.
    Spawn(Arc<io::Error>),
    /// There is no plugin, and the credential in the kubeconfig cannot be served.
    Stored(Box<StoredError>),
    /// The caller that ran it in its own terminal, this process, has left.
    TerminalLost(u32),
    /// It was not started: its issuer asked for fewer runs.
    Throttled {
        /// The provider whose run it is.
        provider: Arc<str>,
        /// The issuer that asked.
        issuer: Arc<str>,
        /// Only the credential is paused, not the issuer.
        of_key: bool,
        /// How long the pause still lasts.
        retry_after: Duration,
    },
    /// It ran longer than this limit, and all of its processes were ended. With the key of the limit in the configuration:
    /// `timeout`, or `interactiveTimeout` for a run that a user attends.
    Timeout(Duration, &'static str),
    /// The file system of its executable does not respond.
    Unanswered,
    /// Its executable cannot be read.
    Unreadable(Arc<io::Error>),
}

impl RunError {
    /// An error without stderr.
    pub fn new(command: impl Into<Arc<str>>, kind: RunErrorKind) -> Self {
        Self { command: command.into(), kind, stderr: Arc::default() }
    }

    /// The error of a run of `spec`.
    pub fn of(spec: &PluginSpec, kind: RunErrorKind) -> Self {
        Self::new(sanitize(&spec.command()), kind)
    }

    /// The error of a run that does not start: its issuer is paused, or only its key.
    pub fn throttled(spec: &PluginSpec, of_key: bool, retry_after: Duration) -> Self {
        let (provider, issuer) = (Arc::clone(&spec.provider.name), Arc::clone(&spec.provider.issuer.name));
        Self::of(spec, RunErrorKind::Throttled { provider, issuer, of_key, retry_after })
    }

    pub(crate) fn no_file(spec: &PluginSpec, error: FileError) -> Self {
        let provider = &spec.provider;
        match error {
            FileError::NotFound => {
                let kind = RunErrorKind::NotFound(provider.not_installed());
                Self::new(sanitize(&provider.command.to_string()), kind)
            }
            FileError::Unanswered => Self::of(spec, RunErrorKind::Unanswered),
            FileError::Unreadable(source) => Self::of(spec, RunErrorKind::Unreadable(source)),
        }
    }

    /// Whether the plugin failed by itself, and its words may say why.
    pub fn ends_with_stderr(&self) -> bool {
        matches!(self.kind, RunErrorKind::Exit(_) | RunErrorKind::Signal(_)) && !self.stderr.is_empty()
    }

    /// Whether a plugin that took too long may have waited for a user: it wrote something.
    pub fn may_wait_for_person(&self) -> bool {
        matches!(self.kind, RunErrorKind::Timeout(..)) && !self.stderr.is_empty()
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            RunErrorKind::Decode(source) => Some(source),
            RunErrorKind::ExecInfo(source) => Some(source),
            RunErrorKind::Stored(source) => Some(&**source),
            RunErrorKind::Unreadable(source) => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use RunErrorKind as Kind;
        let plugin = format!("plugin `{}`", self.command);
        let tail = if self.stderr.is_empty() { "" } else { &format!("; its stderr ends: {}", self.stderr) };
        f.write_str(&match &self.kind {
            Kind::ArgumentsTooLong(size) => format!("{plugin} cannot be started: its arguments and environment have {size} bytes, more than the kernel allows (128 KiB for each, about 2 MiB in total); pass fewer variables in `passEnv`, `callerEnv` or `env`"),
            Kind::Decode(_) => format!("{plugin} did not print a valid ExecCredential"),
            Kind::Directory(base, cause) => format!("cannot make a working directory for {plugin} in {}: {cause}; check that it exists, is writable, and that the disk is not full", base.display()),
            Kind::ExecInfo(_) => format!("cannot pass the cluster to {plugin}"),
            Kind::Exit(SHELL_KILLED) => format!("{plugin} failed with exit code {SHELL_KILLED}: one of its processes was ended by signal {KILLED}; {LACKING}{tail}"),
            Kind::Exit(code) => format!("{plugin} failed with exit code {code}{tail}"),
            Kind::NeedsTerminal => format!("{plugin} needs a login: it tried to use a terminal, but the broker has no terminal{tail}"),
            Kind::NotAllowed(refusal) => format!("{plugin} is not allowed: {refusal}"),
            Kind::NotFound(rest) => format!("{plugin} is not installed{rest}"),
            Kind::OutputTooLarge(limit) => {
                format!("{plugin} printed more than {limit} bytes on stdout and was ended")
            }
            Kind::Panicked => format!("the run of {plugin} ended without a result; this is a bug in the broker, please report it"),
            Kind::Recursion => format!("{plugin} called credbroker-exec: it reads a kubeconfig whose user runs the shim; set another kubeconfig for the provider (`env: [{{name: KUBECONFIG, value: …}}]`)"),
            Kind::Signal(KILLED) => format!("{plugin} was ended by signal {KILLED}; {LACKING}{tail}"),
            Kind::Signal(signal) => format!("{plugin} was ended by signal {signal}{tail}"),
            Kind::Spawn(cause) => format!("{plugin} cannot be started: {cause}; check that it is executable and that its interpreter is installed"),
            Kind::Stored(_) => format!("the credential that the kubeconfig {} names cannot be used", self.command),
            Kind::TerminalLost(process) => {
                format!("{plugin} ran in the terminal of process {process}, which has exited")
            }
            Kind::Throttled { provider, issuer, of_key, retry_after } => {
                let pause = pause(*of_key, *retry_after, provider);
                format!("{plugin} was not started: issuer `{issuer}` asked for fewer runs{pause}")
            }
            Kind::Timeout(limit, key) => {
                format!("{plugin} ran longer than {limit:?} (the provider's `{key}`) and was ended{tail}")
            }
            Kind::Unanswered => format!("{plugin} was not started: its file system did not respond in time; check for a network mount that hangs"),
            Kind::Unreadable(_) => format!("the file of {plugin} cannot be read"),
        })
    }
}

/// How long a pause still lasts, and what runs the plugin.
fn pause(of_key: bool, left: Duration, provider: &str) -> String {
    let refresh = format!("`credbroker refresh {}`", quoted(provider));
    let paused = if of_key { ", and this credential" } else { " and" };
    match left {
        Duration::ZERO => format!("; the pause has ended, and the next request or {refresh} runs it"),
        left => format!("{paused} is paused for another {}; to run it now, use {refresh}", seconds(left)),
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis().div_ceil(1000))
}
