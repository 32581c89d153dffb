//! Why a run brought no credential.

use std::{io, path::Path, sync::Arc, time::Duration};

use credbroker_credential::{DecodeError, ExecInfoError, text::sanitize};
use credbroker_plugin::{FileError, PluginSpec, Refusal};

/// Why a plugin run brought no credential. Never contains stdout, which may be a token.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// Its arguments and environment exceed a limit of the kernel.
    #[error(
        "plugin `{command}` cannot be started: its arguments and environment have {size} bytes, more than the kernel allows (128 KiB for each, about 2 MiB in total); pass fewer variables in `passEnv`, `callerEnv` or `env`"
    )]
    ArgumentsTooLong {
        /// The plugin's executable.
        command: Arc<str>,
        /// Bytes of all arguments and variables.
        size: usize,
    },
    /// Its output is not accepted.
    #[error("plugin `{command}` did not print a valid ExecCredential")]
    Decode {
        /// The plugin's executable.
        command: Arc<str>,
        /// Why it is not accepted.
        source: DecodeError,
    },
    /// The broker could not make a working directory for it.
    #[error(
        "cannot make a working directory for plugin `{command}` in {}: {cause}; check that it exists, is writable, and that the disk is not full",
        base.display()
    )]
    Directory {
        /// The plugin's executable.
        command: Arc<str>,
        /// Where working directories are made.
        base: Arc<Path>,
        /// The error of the kernel.
        cause: Arc<io::Error>,
    },
    /// Its cluster cannot be passed to it.
    #[error("cannot pass the cluster to plugin `{command}`")]
    ExecInfo {
        /// The plugin's executable.
        command: Arc<str>,
        /// Why.
        source: ExecInfoError,
    },
    /// Its exit code is not 0.
    #[error("plugin `{command}` failed with exit code {code}{}", tail(.stderr))]
    Exit {
        /// The plugin's executable.
        command: Arc<str>,
        /// Its exit code.
        code: i32,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// It tried to use a terminal.
    #[error(
        "plugin `{command}` needs a login: it tried to use a terminal, and a broker has none{}",
        tail(.stderr)
    )]
    NeedsTerminal {
        /// The plugin's executable.
        command: Arc<str>,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// Its executable must not run.
    #[error("plugin `{command}` is not allowed: {refusal}")]
    NotAllowed {
        /// The plugin's executable.
        command: Arc<str>,
        /// Why it must not run.
        refusal: Refusal,
    },
    /// Its executable does not exist.
    #[error("plugin `{command}` is not installed{place}{}", hint(.install_hint.as_deref()))]
    NotFound {
        /// As configured.
        command: Arc<str>,
        /// Where it was searched for, or empty.
        place: &'static str,
        /// `installHint` of the stanza, sanitised.
        install_hint: Option<String>,
    },
    /// It printed more than the limit and was ended.
    #[error("plugin `{command}` printed more than {limit} bytes on stdout and was ended")]
    OutputTooLarge {
        /// The plugin's executable.
        command: Arc<str>,
        /// Bytes allowed.
        limit: usize,
    },
    /// It ended without a result because of a bug in the broker.
    #[error(
        "the run of plugin `{command}` ended without a result; this is a bug in the broker, please report it"
    )]
    Panicked {
        /// The plugin's executable.
        command: Arc<str>,
    },
    /// It asked the broker for the credential that it must provide.
    #[error(
        "plugin `{command}` called credbroker-exec: it reads a kubeconfig whose user runs the shim; set another kubeconfig for the provider (`env: [{{name: KUBECONFIG, value: …}}]`)"
    )]
    Recursion {
        /// The plugin's executable.
        command: Arc<str>,
    },
    /// A signal that the broker did not send ended it.
    #[error("plugin `{command}` was ended by signal {signal}{}", tail(.stderr))]
    Signal {
        /// The plugin's executable.
        command: Arc<str>,
        /// The signal's number.
        signal: i32,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// It could not be started.
    #[error(
        "plugin `{command}` cannot be started: {cause}; check that it is executable and that its interpreter is installed"
    )]
    Spawn {
        /// The plugin's executable.
        command: Arc<str>,
        /// The error of the kernel.
        cause: Arc<io::Error>,
    },
    /// The caller that ran it in its own terminal has left.
    #[error("process {process}, whose terminal plugin `{command}` used, has exited")]
    TerminalLost {
        /// The plugin's executable.
        command: Arc<str>,
        /// The process.
        process: u32,
    },
    /// It was not started: its issuer asked for fewer runs.
    #[error(
        "plugin `{command}` was not started: issuer `{issuer}` asked for fewer runs{}",
        pause(*.of_key, *.retry_after, .provider)
    )]
    Throttled {
        /// The plugin's executable.
        command: Arc<str>,
        /// The provider whose run it is.
        provider: Arc<str>,
        /// The issuer that asked.
        issuer: Arc<str>,
        /// Only the credential is paused, not the issuer.
        of_key: bool,
        /// How long the pause still lasts.
        retry_after: Duration,
    },
    /// It ran too long, and all of its processes were ended.
    #[error("plugin `{command}` ran longer than {limit:?} (the provider's `{key}`) and was ended{}", tail(.stderr))]
    Timeout {
        /// The plugin's executable.
        command: Arc<str>,
        /// The limit.
        limit: Duration,
        /// Its key in the configuration: `timeout`, or `interactiveTimeout` for a run that a person attends.
        key: &'static str,
        /// The end of its stderr, sanitised.
        stderr: Arc<str>,
    },
    /// The file system of its executable does not respond.
    #[error(
        "plugin `{command}` was not started: its file system did not respond in time; check for a network mount that hangs"
    )]
    Unanswered {
        /// The plugin's executable.
        command: Arc<str>,
    },
    /// Its executable cannot be read.
    #[error("the file of plugin `{command}` cannot be read")]
    Unreadable {
        /// The plugin's executable.
        command: Arc<str>,
        /// The error of the kernel.
        source: Arc<io::Error>,
    },
}

impl RunError {
    /// The error of a run that does not start: its issuer is paused, or only its key.
    pub fn throttled(spec: &PluginSpec, of_key: bool, retry_after: Duration) -> Self {
        let (provider, issuer) = (Arc::clone(&spec.provider.name), Arc::clone(&spec.provider.issuer.name));
        Self::Throttled { command: spec.command(), provider, issuer, of_key, retry_after }
    }

    pub(crate) fn no_file(spec: &PluginSpec, error: FileError) -> Self {
        let command = command_of(spec);
        match error {
            FileError::NotFound => Self::NotFound {
                command: sanitize(&spec.provider.command.to_string()).into(),
                place: spec.provider.command.place(),
                install_hint: spec.provider.install_hint.as_deref().map(sanitize),
            },
            FileError::Unanswered => Self::Unanswered { command },
            FileError::Unreadable(source) => Self::Unreadable { command, source },
        }
    }
}

pub(crate) fn command_of(spec: &PluginSpec) -> Arc<str> {
    sanitize(&spec.command()).into()
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its stderr ends: {stderr}") }
}

/// How long a pause still lasts, and what runs the plugin.
fn pause(of_key: bool, left: Duration, provider: &str) -> String {
    let refresh = format!("`credbroker refresh {provider}`");
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

fn hint(install_hint: Option<&str>) -> String {
    install_hint.map(|hint| format!(". {hint}")).unwrap_or_default()
}
